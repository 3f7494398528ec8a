"""Filters that demand an equality, reached by the hash of the message's value."""
