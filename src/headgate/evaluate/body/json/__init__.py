"""JSON texts in kernels: one pass that checks a text and finds the values of several paths."""
