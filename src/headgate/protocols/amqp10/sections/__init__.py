"""The sections of a message that the protocol looks into, compiled: for the kernels of transfers and messages."""
