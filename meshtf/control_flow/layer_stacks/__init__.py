"""Stacks of layers: one function, applied once for each layer with weights of its own, in turn or several layers at
once.
"""
