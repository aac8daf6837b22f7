"""The dtype in which a model computes with the arrays that it is given."""

from __future__ import annotations

import meshtf as mtf


def in_activation_dtype(x: mtf.Tensor) -> mtf.Tensor:
    """x in the dtype of the graph's activations if this has 16 bits, so that float32 does not widen what follows."""
    dtype = x.graph.variable_dtype.activation_dtype
    is_narrower = dtype is not None and x.dtype.is_floating and dtype.size == 2 < x.dtype.size
    return mtf.cast(x, dtype) if is_narrower else x
