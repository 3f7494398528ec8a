"""Service Bus's operators as the kernel decides them (`kernel.py`); imported by the kernel only."""
