"""Values as the kernel handles them (`kernel.py`); imported by the kernel only."""
