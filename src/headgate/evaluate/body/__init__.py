"""Filters that look into the body: where its text is, whether it may hold what is asked for, and the values in it."""
