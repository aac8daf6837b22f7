"""Stacks of layers: one function applied once for each layer, with that layer's weights.

Layers run one after the other, or several at once.
"""
