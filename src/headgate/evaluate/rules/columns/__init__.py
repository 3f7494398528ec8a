"""Predicates on one field: what they all say about a value is found once and known again by the value's class."""
