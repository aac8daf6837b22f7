"""Makes virtual CPUs fast. Plain emission computes the same results without it."""
