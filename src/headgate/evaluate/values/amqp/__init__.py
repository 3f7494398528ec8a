"""The extensions of the dialect `amqp` as the kernel decides them (`kernel.py`); imported by the kernel only."""
