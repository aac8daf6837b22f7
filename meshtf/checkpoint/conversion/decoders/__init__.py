"""Decoders of other libraries with several kinds of layers: reads the kinds, and plans stacks of them."""
