"""The operators of CloudEvents SQL as the kernel decides them (`kernel.py`); imported by the kernel only."""
