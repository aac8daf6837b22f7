"""`nmap`: a TensorFlow function of arrays, mapped over all named dimensions that it does not see."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from meshtf.annotations.shape_pattern import parse_shape_pattern
from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, Shape
from meshtf.errors import ShapeError, nearest
from meshtf.graph.dtypes import dtype_of
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.broadcasting import union
from meshtf.ops.slicewise._arguments import check_operands
from meshtf.ops.slicewise.local_function import as_tensors, name_of
from meshtf.ops.slicewise.slicewise import SlicewiseOperation

Names = str | Iterable[str | Dimension]
"""Dimensions as text, "rows columns", or as a list of names or dimensions."""


@dataclasses.dataclass(frozen=True, slots=True)
class _OnSlices:
    """Applies a function of one element to slices of many elements.

    Attributes:
      tf_fn: the function of one element.
      operands: the names of each operand's dimensions, in order.
      seen: the names of the dimensions that the function sees, in order.
      mapped: the names of the others.
    """

    tf_fn: Callable[..., Any]
    operands: tuple[tuple[str, ...], ...]
    seen: tuple[str, ...]
    mapped: tuple[str, ...]

    def __call__(self, *slices: tf.Tensor) -> list[tf.Tensor]:
        named = [dict(zip(names, x.shape, strict=True)) for names, x in zip(self.operands, slices, strict=True)]
        sizes = [next(own[name] for own in named if name in own) for name in self.mapped]
        if not self.mapped:
            return as_tensors(self.tf_fn(*(self._ordered(i, x) for i, x in enumerate(slices))))
        elements = tuple(self._elements(i, x, sizes) for i, x in enumerate(slices))
        if 0 in sizes:  # there is nothing to map, but the function's result still determines the shape
            elements = tuple(tf.zeros([1, *x.shape[1:]], x.dtype) for x in elements)
        results = tf.vectorized_map(lambda given: tuple(as_tensors(self.tf_fn(*given))), elements, warn=False)
        whole = [y[:0] for y in results] if 0 in sizes else results
        return [tf.reshape(y, [*sizes, *y.shape[1:]]) for y in whole]

    def _ordered(self, operand: int, x: tf.Tensor) -> tf.Tensor:
        """A slice with the mapped dimensions first, then those that the function sees, each in order."""
        own = self.operands[operand]
        return tf.transpose(x, [own.index(name) for name in (*self.mapped, *self.seen) if name in own])

    def _elements(self, operand: int, x: tf.Tensor, sizes: Sequence[int]) -> tf.Tensor:
        """A slice with all elements along its first dimension, or with one element that all of them share."""
        own, ordered = self.operands[operand], self._ordered(operand, x)
        count = sum(name in own for name in self.mapped)
        rest = ordered.shape[count:]
        if not count:
            return ordered[None]
        here = [size if name in own else 1 for name, size in zip(self.mapped, sizes, strict=True)]
        spread = tf.broadcast_to(tf.reshape(ordered, [*here, *rest]), [*sizes, *rest])
        return tf.reshape(spread, [math.prod(sizes), *rest])


@language_function
def nmap(
    tf_fn: Callable[..., Any],
    xs: Tensor | Sequence[Tensor],
    dims: Names,
    output_dims: Names | None = None,
    output_dtype: tf.DType | None = None,
    name: str | None = None,
) -> Tensor:
    """Maps a TensorFlow function of arrays over all dimensions except those that it sees.

    The function works by position, on one element at a time. The dimensions that it sees are gathered. The others are
    mapped, with `tf.vectorized_map`, and stay split as they are. Gradients are TensorFlow's.

    Args:
      tf_fn: takes a tf.Tensor for each of `xs`, and returns one. It is traced without autograph, several times.
      xs: operands. An operand that lacks a mapped dimension is repeated along it.
      dims: the dimensions that the function sees, in the order of its arrays: "rows columns". Each operand has some or
        all of them.
      output_dims: the dimensions of its result, in order; by default `dims`. A new dimension needs a size: "k:3".
      output_dtype: the dtype of its result, by default the first operand's.
      name: the operation's name.

    Returns:
      A tensor with the mapped dimensions in front, then `output_dims`.

    Raises:
      ShapeError: a dimension is in no operand, a new dimension has no size, or `output_dims` has a mapped dimension.

    Examples:
      >>> matrices = mtf.random_normal(mesh, "batch:4 rows:3 columns:3")
      >>> mtf.nmap(tf.linalg.det, matrices, "rows columns", "")
      matrix_determinant [batch:4] float32
      >>> mtf.nmap(lambda row: tf.math.top_k(row, 2).values, x, "hidden", "best:2").shape
      Shape[batch:4 best:2]
    """
    operands = check_operands(tf_fn, xs)
    everything = union([x.shape for x in operands])
    seen = [everything.get_dim_by_name(d).name for d in _names(dims)]
    mapped = Shape([d for d in everything if d.name not in seen])
    outputs = _output_dims(seen if output_dims is None else output_dims, everything, mapped)
    on_slices = _OnSlices(
        tf_fn, tuple(tuple(x.shape.dimension_names) for x in operands), tuple(seen), tuple(mapped.dimension_names)
    )
    dtype = operands[0].dtype if output_dtype is None else dtype_of(output_dtype)
    return SlicewiseOperation(
        on_slices, operands, [(mapped + outputs, dtype)], mapped.dimension_names, name=name or name_of(tf_fn, "nmap")
    ).outputs[0]


def _names(dims: Names) -> list[str]:
    return [d.name for d in parse_shape_pattern(dims if isinstance(dims, str) else list(dims)).dims]


def _output_dims(dims: Names, everything: Shape, mapped: Shape) -> Shape:
    found = []
    for dim in parse_shape_pattern(dims if isinstance(dims, str) else list(dims)).dims:
        if mapped.has(dim.name):
            raise ShapeError(f'dimension "{dim.name}" is mapped, since dims does not name it; the result has it anyway')
        if isinstance(dim.size, int):
            found.append(Dimension(dim.name, dim.size))
        elif everything.has(dim.name):
            found.append(everything.get_dim_by_name(dim.name))
        else:
            hint = nearest(dim.name, everything.dimension_names) or f'; give its size, as in "{dim.name}:3"'
            raise ShapeError(f'output dimension "{dim.name}" is in no operand{hint}')
    return Shape(found)
