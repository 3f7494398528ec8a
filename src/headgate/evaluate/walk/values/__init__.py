"""Single encoded values as the kernel reads them (`kernel.py`); imported by the kernel only."""
