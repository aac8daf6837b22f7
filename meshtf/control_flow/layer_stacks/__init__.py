"""Stacks of layers: one function applied once for each layer, in turn or several at once, with weights for each."""
