"""Advice for errors: how to convert an array without dimension names to a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape


def how_to_name(array: object, beside: Shape | None = None, dtype: tf.DType | None = None) -> str:
    """The call that converts an array to a tensor, as text for a message; empty for a value that is not an array.

    The suggested names are those of dimensions of `beside`, the shape of the other operand, with the same sizes: its
    last ones, as NumPy would broadcast, or others in order. The dtype defaults to the array's, in 32 bits.
    """
    sizes = _sizes(array)
    if sizes is None:
        return ""
    shape = " ".join(f"{name}:{size}" for name, size in zip(_names(sizes, beside), sizes, strict=True))
    fact = f"its shape is {list(sizes)}" + (f", beside [{beside}]" if beside is not None else "")
    mesh = "mesh" if beside is None else "x.mesh"
    if isinstance(array, tf.Tensor | tf.Variable):
        return f'{fact}; write mtf.import_tf_tensor({mesh}, value, "{shape}")'
    wanted = _dtype(array) if dtype is None else dtype.name
    given = f", tf.{wanted}" if wanted != "float32" else ""
    return f'{fact}; write mtf.constant({mesh}, array, "{shape}"{given})'


def _sizes(array: Any) -> tuple[int, ...] | None:
    if isinstance(array, tf.Tensor | tf.Variable):
        return tuple(array.shape) if array.shape.is_fully_defined() else None
    if isinstance(array, np.ndarray):
        known = cast("np.ndarray[Any, Any]", array)
        return known.shape if known.dtype.kind in "biufcV" else None
    if isinstance(array, list | tuple) and all(isinstance(x, bool | int | float) for x in tf.nest.flatten(array)):
        try:
            return np.shape(cast("Any", array))
        except ValueError:  # its rows differ in length
            return None
    return None


def _dtype(array: Any) -> str:
    return {"b": "bool", "i": "int32", "u": "int32", "c": "complex64"}.get(np.asarray(array).dtype.kind, "float32")


def _names(sizes: Sequence[int], beside: Shape | None) -> list[str]:
    own = beside.dims if beside is not None else ()
    last = own[len(own) - len(sizes) :] if len(sizes) <= len(own) else ()
    if [d.size for d in last] == list(sizes):
        return [d.name for d in last]
    found: list[str] = []
    for dim in own:
        if len(found) < len(sizes) and dim.size == sizes[len(found)]:
            found.append(dim.name)
    return found if len(found) == len(sizes) else [f"name_{i}" for i in range(len(sizes))]
