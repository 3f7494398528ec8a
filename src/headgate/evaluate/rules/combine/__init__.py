"""Filters as short programs over the bitmaps of their predicates."""
