"""Contracts: checks tensors against the annotations of a function when it is called."""
