"""Map sections as Variant objects; the code is in `kernel.py`."""
