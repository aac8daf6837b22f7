"""The dtype in which a model computes with its input arrays."""

from __future__ import annotations

import meshtf as mtf


def in_activation_dtype(x: mtf.Tensor) -> mtf.Tensor:
    """Casts x to the graph's activation dtype if that has 16 bits, so that float32 inputs do not widen later layers."""
    dtype = x.graph.variable_dtype.activation_dtype
    is_narrower = dtype is not None and x.dtype.is_floating and dtype.size == 2 < x.dtype.size
    return mtf.cast(x, dtype) if is_narrower else x
