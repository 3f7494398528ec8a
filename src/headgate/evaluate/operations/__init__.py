"""Operations that the interpreter leaves to a call (`kernel.py`); imported by kernels only."""
