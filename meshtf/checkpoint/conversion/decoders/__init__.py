"""Decoders of other libraries whose layers are not all alike: their kinds, and in which stacks they stand."""
