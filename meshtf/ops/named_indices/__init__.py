"""Brackets of tensors: what an index along a named dimension means, and the operations that it is made of."""
