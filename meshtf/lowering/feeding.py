"""Checks the names, shapes and dtypes of the arrays that are fed to a program, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from meshtf.call_sites import user_site
from meshtf.errors import FeedError, MeshtfError, nearest
from meshtf.graph.graph import Graph
from meshtf.host_array import host_array
from meshtf.ops.inputs.placeholder import InputOperation
from meshtf.planning.plan import Plan

Fed: TypeAlias = tf.Tensor | np.ndarray
"""An array that a program is fed."""


def check_feeds(
    inputs: Sequence[InputOperation],
    feeds: Mapping[str, Any],
    known: Mapping[str, InputOperation],
    program: str,
    *,
    keeps_arrays: bool = False,
) -> list[Fed]:
    """Returns the arrays of `inputs`, in order. An input that was imported with a value needs no feed.

    NumPy arrays become tensors, for which TensorFlow makes two copies, unless `keeps_arrays`.

    Raises:
      FeedError: an input is missing, unknown, or of the wrong shape or dtype. The error lists all of them.
    """
    faults = [_unknown(name, known) for name in feeds if name not in known]
    arrays = []
    for operation in inputs:
        (tensor,) = operation.outputs
        value = feeds.get(operation.name, operation.value)
        if value is None:
            faults.append(f'input "{operation.name}" [{tensor.shape}] {tensor.dtype.name} is missing')
            continue
        try:
            fit = fitted(value, tensor.dtype, tensor.shape.to_integer_list)
            arrays.append(fit if keeps_arrays else tf.convert_to_tensor(fit))
        except UnfitError as fault:
            faults.append(f'input "{operation.name}" must be [{tensor.shape}] {tensor.dtype.name}, and {fault}')
    if faults:
        raise FeedError("\n  ".join([f'program "{program}" was given wrong inputs:', *faults, f"at {user_site()}"]))
    return arrays


def _unknown(name: str, known: Mapping[str, InputOperation]) -> str:
    listed = f"; the inputs are: {', '.join(known) or 'none'}"
    return f'no input "{name}"{nearest(name, known) or listed}'


def fed_arrays(plan: Plan, feeds: Mapping[str, Any], graph: Graph) -> dict[str, np.ndarray]:
    """The arrays of a plan's inputs by name, for the interpreter. They are checked by `check_feeds`."""
    inputs = inputs_of(plan)
    known = {o.name: o for o in graph.program_operations if isinstance(o, InputOperation)}
    checked = check_feeds(inputs, feeds, known, graph.name)
    return {o.name: host_array(array) for o, array in zip(inputs, checked, strict=True)}


def inputs_of(plan: Plan) -> list[InputOperation]:
    """The inputs of a program, in order."""
    return [feed.operation for feed in plan.feeds if isinstance(feed.operation, InputOperation)]


class UnfitError(Exception):
    """Says why a value cannot be an input."""


def fitted(value: Any, dtype: tf.DType, sizes: list[int]) -> Fed:
    """The value as an array. Python numbers take the input's dtype; arrays must have it. Else raises UnfitError."""
    # A value that fits returns at once, since each step of a small program waits for this check.
    if type(value) is np.ndarray and value.dtype == dtype.as_numpy_dtype and value.shape == tuple(sizes):
        return value
    if isinstance(value, tf.Tensor) and value.dtype == dtype and _has_sizes(value, sizes):
        return value
    if isinstance(value, tf.Variable):
        value = tf.convert_to_tensor(value)
    elif tf.is_tensor(value) and not isinstance(value, tf.Tensor):
        raise UnfitError(f"is a {type(value).__name__}; make it dense first")
    elif not isinstance(value, np.ndarray | np.generic | tf.Tensor):
        value = _array_of_numbers(value, dtype)
    if isinstance(value, np.ma.MaskedArray):
        raise UnfitError("is a masked array; fill its masked elements first, as in x.filled(0)")
    if tuple(sizes) != value.shape and not tf.TensorShape(value.shape).is_compatible_with(sizes):
        raise UnfitError(f"has shape {list(value.shape)}")
    if value.dtype != dtype:
        given = value.dtype.name
        cast = f"tf.cast(x, tf.{dtype.name})" if isinstance(value, tf.Tensor) else f"x.astype({dtype.name!r})"
        raise UnfitError(f"has dtype {given}; convert it, as in {cast}")
    if isinstance(value, tf.Tensor):
        known = tf.TensorShape(value.shape).is_fully_defined()  # its shape may be unknown inside a user's tf.function
        return value if known else tf.ensure_shape(value, sizes)
    return np.asarray(value, dtype.as_numpy_dtype)  # in this machine's byte order


def _has_sizes(value: tf.Tensor, sizes: list[int]) -> bool:
    return value.shape.rank is not None and value.shape.as_list() == sizes


def _array_of_numbers(value: Any, dtype: tf.DType) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError:
        raise UnfitError(f"is a {type(value).__name__} that is not an array: its parts differ in length") from None
    except MeshtfError:  # of a tensor of the language
        raise
    except (TypeError, RuntimeError) as error:  # as of PyTorch's tensors on a GPU
        raise UnfitError(f"is a {type(value).__name__} that does not become an array: {error}") from None
    if array.dtype == dtype.as_numpy_dtype:
        return array
    if array.dtype.kind not in "biufc":
        raise UnfitError(f"is a {type(value).__name__} of {array.dtype}, not an array of numbers")
    if array.size and array.dtype.kind not in _kinds(dtype):
        raise UnfitError(f"has {array.dtype.name} values")
    finite = array[np.isfinite(array)]
    has_range = finite.size and (dtype.is_integer or dtype.is_floating)
    if has_range and not (dtype.min <= finite.min() and finite.max() <= dtype.max):
        raise UnfitError(f"has values from {finite.min()} to {finite.max()}, beyond {dtype.name}")
    return array.astype(dtype.as_numpy_dtype)


def _kinds(dtype: tf.DType) -> str:
    """The kinds of NumPy dtypes whose values this dtype can hold."""
    if dtype == tf.bool:
        return "b"
    return "iufc" if dtype.is_complex else "iuf" if dtype.is_floating else "iu"
