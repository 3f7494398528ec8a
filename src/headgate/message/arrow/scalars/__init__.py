"""Scalars as the kernels of both directions read them; the code is in `kernel.py`."""
