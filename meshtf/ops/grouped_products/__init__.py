"""Products of rows in groups, where each group has its own matrix.

Experts are groups: x [slots:5 d_model] holds the tokens of expert 0 (3 rows), then of expert 1 (1 row), then an empty
row. With sizes [3, 1], rows 0 to 2 are multiplied by w[0], row 3 by w[1], and row 4 gives zeros.

- `_by_groups`: where shapes may depend on values (CPU), one product for each group.
- `_by_tiles`: where shapes must be known (XLA), one product for each pair of a tile of rows and a group in it.
"""
