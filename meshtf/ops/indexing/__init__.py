"""Elements of tensors by their index: gather, scatter, slices at positions that the program computes."""
