"""Transposes and broadcasts: a tensor with its dimensions in another order, or with more of them."""

from __future__ import annotations

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Shape, ShapeLike, shape_of
from meshtf.errors import ShapeError, nearest
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation


@language_function
def transpose(x: Tensor, new_shape: ShapeLike, name: str = "transpose") -> Tensor:
    """x with the same dimensions in another order.

    Raises:
      ShapeError: `new_shape` lacks a dimension of x, or has one that x lacks.

    Examples:
      >>> mtf.transpose(x, "hidden batch")
      transpose [hidden:8 batch:4] float32
    """
    shape = check_tensor(x).shape.only(new_shape)
    if shape.ndims != x.shape.ndims:
        raise ShapeError(f"[{x.shape}] and [{shape}] do not have the same dimensions; give each of them once")
    return broadcast_to(x, shape, name)


@language_function
def broadcast(x: Tensor, new_shape: ShapeLike) -> Tensor:
    """x repeated along the dimensions of `new_shape` that it lacks.

    Examples:
      >>> mtf.broadcast(x, "copies:2 batch hidden")
      broadcast [copies:2 batch:4 hidden:8] float32
    """
    shape = shape_of(new_shape, check_tensor(x).shape)
    for dim in x.shape:
        if not shape.has(dim.name):
            known = nearest(dim.name, shape.dimension_names)
            raise ShapeError(f'new_shape [{shape}] lacks dimension "{dim.name}" of [{x.shape}]{known}')
    return broadcast_to(x, shape, "broadcast")


def broadcast_to(x: Tensor, shape: Shape, name: str) -> Tensor:
    """x with its dimensions in another order, repeated along the new ones."""
    if x.shape == shape:
        return x
    return ElementwiseOperation(
        name, tf.identity, [x], output_shape=shape, gradient=lambda op, dy: (dy,), is_linear=True
    ).outputs[0]
