"""How to write an array, whose dimensions have no names, where a tensor is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape


def how_to_name(array: object, beside: Shape | None = None, dtype: tf.DType | None = None) -> str:
    """The call that gives an array names; with the shape of the tensor beside it, if there is one.

    The names are those of dimensions beside it with the same sizes: the last ones, as NumPy would broadcast, or others
    in order. Without a dtype it is that of the array, in 32 bits. Returns an empty text for a value that is no array.
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
        except ValueError:  # its parts differ in length
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
