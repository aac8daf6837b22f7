"""Brackets of tensors: the meaning of an index along a named dimension, and the operations that implement it."""
