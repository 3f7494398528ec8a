"""A small client over the same protocol cores."""
