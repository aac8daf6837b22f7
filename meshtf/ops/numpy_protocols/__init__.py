"""NumPy's functions of tensors: tables of the operations that they build."""
