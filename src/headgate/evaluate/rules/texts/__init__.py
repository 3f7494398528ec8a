"""How kernels of this folder know a text again: its hash, and tables of texts."""
