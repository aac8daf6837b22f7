"""Weights of other libraries: which of their tensors are which here, as rules, and reading and writing by them."""
