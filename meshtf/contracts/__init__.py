"""Contracts: the annotations of a function are checked when it is called."""
