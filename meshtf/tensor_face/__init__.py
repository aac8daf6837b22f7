"""Operators, methods and brackets of tensors: thin faces on the operations, which `meshtf.ops` registers by name."""
