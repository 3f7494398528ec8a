"""Where an element of a message ends, as kernels find it; the code is in `kernel.py`."""
