"""Arrays handed to a program: names, shapes and dtypes are checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.errors import FeedError, nearest
from meshtf.ops.inputs import InputOperation


def check_feeds(
    inputs: Sequence[InputOperation], feeds: Mapping[str, Any], known: Mapping[str, InputOperation], program: str
) -> list[tf.Tensor]:
    """The arrays of `inputs`, in order. An input that was imported with a value needs no feed.

    Raises:
      FeedError: listing every input that is missing, unknown, or of the wrong shape or dtype.
    """
    faults = [f'no input "{name}"{nearest(name, known)}' for name in feeds if name not in known]
    arrays = []
    for operation in inputs:
        (tensor,) = operation.outputs
        value = feeds.get(operation.name, operation.value)
        if value is None:
            faults.append(f'input "{operation.name}" [{tensor.shape}] {tensor.dtype.name} is missing')
            continue
        array, fault = _converted(value, tensor.dtype)
        if fault is None and array.shape.as_list() != tensor.shape.to_integer_list:
            fault = f"has shape {array.shape.as_list()}"
        if fault is not None:
            faults.append(f'input "{operation.name}" must be [{tensor.shape}] {tensor.dtype.name}, and {fault}')
        arrays.append(array)
    if faults:
        raise FeedError("\n  ".join([f'program "{program}" was fed wrongly:', *faults]))
    return arrays


def _converted(value: Any, dtype: tf.DType) -> tuple[Any, str | None]:
    """The value as a tensor. Python numbers take the input's dtype; arrays must have it."""
    if isinstance(value, tf.Tensor | tf.Variable):
        return tf.convert_to_tensor(value), None if value.dtype == dtype else f"has dtype {value.dtype.name}"
    if not isinstance(value, np.ndarray | np.generic):
        value = np.asarray(value)
        if value.dtype.kind not in "biufc":
            return tf.zeros([]), f"is no array of numbers but {value.dtype}"
        if value.dtype.kind == "f" and not (dtype.is_floating or dtype.is_complex):
            return tf.zeros([]), f"has dtype {value.dtype.name}"
        value = value.astype(dtype.as_numpy_dtype)
    if tf.as_dtype(value.dtype) != dtype:
        return tf.zeros(value.shape), f"has dtype {value.dtype.name}; convert it, as in x.astype({dtype.name!r})"
    return tf.convert_to_tensor(value), None
