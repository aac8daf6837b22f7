"""Programs: a Python function over named tensors becomes a compiled program for a mesh."""
