"""Norms and means of whole weights, which stay the same if layers are stacked or dimensions padded.

They are taken per layer: over all dimensions except those that count the layers of a stack. Padding is zero, so sums
need no correction. Means divide by the sizes without padding, and a mean of no elements is 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import tensorflow as tf

import meshtf as mtf
from meshtf.ops.reductions.sum_of_squares import root_of_squares, sum_of_squares
from meshtf.optimize.parameter import Parameter


def norm(x: mtf.Tensor, parameter: Parameter) -> mtf.Tensor:
    """The Euclidean length of x [shape of the parameter], as [its stacked dimensions]."""
    return root_of_squares(sum_of_squares(x, parameter.variable.stacked_dims))


def global_norm(xs: Sequence[mtf.Tensor]) -> mtf.Tensor:
    """The Euclidean length of all tensors as one vector: a scalar, float64 if one of them is, else float32."""
    dtype = tf.float64 if any(x.dtype == tf.float64 for x in xs) else tf.float32
    squares = [sum_of_squares(mtf.cast(x, dtype), mtf.Shape([])) for x in xs]
    return root_of_squares(functools.reduce(mtf.add, squares))


def root_mean_square(x: mtf.Tensor, parameter: Parameter, *, per_layer: bool = True) -> mtf.Tensor:
    """The root of the mean square of x [shape of the parameter], as [its stacked dimensions], or as one scalar."""
    stacked = parameter.variable.stacked_dims if per_layer else mtf.Shape([])
    count = math.prod(d.size for d in parameter.variable.unpadded_shape if not stacked.has(d.name))
    return root_of_squares(sum_of_squares(x, stacked)) * (1 / math.sqrt(max(count, 1)))


def mean_over(x: mtf.Tensor, dims: mtf.Shape, parameter: Parameter) -> mtf.Tensor:
    """The mean of x over some dimensions of the parameter."""
    size = mtf.Shape([parameter.variable.unpadded_shape.get_dim_by_name(d.name) for d in dims]).size
    return mtf.reduce_sum(x, output_shape=x.shape - dims) * (1 / max(size, 1))
