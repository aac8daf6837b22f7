"""NumPy's functions on tensors: tables of the operations that they build."""
