"""Initializers of variables: functions of the language, or arrays."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.errors import GraphError, ShapeError
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.host_array import host_array
from meshtf.ops.inputs.placeholder import import_tf_tensor

Initializer: TypeAlias = Callable[[Mesh, Shape, tf.DType], Tensor]

_FUNCTION = "a function (mesh, shape, dtype) -> mtf.Tensor, such as mtf.RandomNormal(stddev=0.02) or mtf.zeros"


def initializer_of(name: str, given: Any, shape: Shape, padded: Shape, dtype: tf.DType) -> Initializer:
    """The initializer of a variable, from a function or from an array of `shape`, whose padding is zeros.

    Raises:
      GraphError: `given` is neither, or the function takes other arguments.
      ShapeError: an array has another shape.
    """
    if callable(given):
        return _checked(name, given)
    array = host_array(given)
    if array.dtype.kind in "OSU":
        raise GraphError(f'the initial value of variable "{name}" must be {_FUNCTION}, or an array, not {given!r}')
    own = shape.to_integer_list
    if list(array.shape) != own:
        hint = "" if array.ndim else f"; for one number everywhere give np.full({own}, {given})"
        raise ShapeError(
            f'the initial value of variable "{name}" [{shape}] is an array of shape {list(array.shape)}{hint}'
        )
    whole = np.zeros(padded.to_integer_list, dtype.as_numpy_dtype)
    whole[tuple(map(slice, own))] = array
    return lambda mesh, own, dtype: import_tf_tensor(mesh, whole, own)


def _checked(name: str, initializer: Callable[..., Any]) -> Initializer:
    """The function itself, if it takes a mesh, a shape and a dtype."""
    try:
        signature = inspect.signature(initializer)
    except ValueError:  # some callables written in C have no known signature
        return initializer
    if not _can_be_called(signature):
        own = getattr(initializer, "__name__", type(initializer).__name__)
        raise GraphError(
            f'the initial value of variable "{name}" must be {_FUNCTION}, or an array; {own} takes {signature}'
        )
    return initializer


def _can_be_called(signature: inspect.Signature) -> bool:
    """Whether a function takes a mesh, a shape and a dtype.

    TensorFlow 1's initializers take three other arguments: (shape, dtype, partition_info).
    """
    if next(iter(signature.parameters), None) == "shape":
        return False
    try:
        signature.bind("mesh", "shape", "dtype")
    except TypeError:
        return False
    return True
