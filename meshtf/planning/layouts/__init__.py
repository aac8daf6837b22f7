"""Which layout each tensor has, and how slices are padded where a size does not divide."""
