"""Products of rows in groups, each group with a matrix of its own."""
