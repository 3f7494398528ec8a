"""Predicates on one field: their verdicts on a value are found once, and known again by the value's class."""
