"""Operators, methods and brackets of tensors. Each calls an operation that `meshtf.ops` registers by name."""
