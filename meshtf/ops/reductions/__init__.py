"""Reductions and scans over a dimension: extrema, products, running sums, softmax."""
