"""Sampling from a categorical distribution along a named dimension."""

from __future__ import annotations

import functools
import math
import numbers

import tensorflow as tf

from meshtf import random
from meshtf.call_sites import language_function
from meshtf.dimension import DimensionLike
from meshtf.errors import DtypeError, UsageError
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.order.argmax import argmax
from meshtf.ops.random.random_operation import RandomOperation


@language_function
def sample_with_temperature(
    logits: Tensor, dim: DimensionLike, temperature: float = 1.0, name: str | None = None
) -> Tensor:
    """An int32 index along `dim`, drawn with probability softmax(logits / temperature).

    It is the index of the largest logits + temperature * noise, with noise from Gumbel's distribution. If the dimension
    is split, each core sends the others only its best. The bits depend on the operation's name, like those of all
    random operations.

    Args:
      logits: a floating tensor. An index whose logit is -inf is never drawn.
      dim: a dimension of the logits. The result has their other dimensions.
      temperature: 0 gives the index of the largest logit.
      name: the operation's name, part of the random key.

    Raises:
      ShapeError: the logits lack the dimension, or it has size 0.
      UsageError: the temperature is not a number of at least 0.
      DtypeError: the logits are not floating.

    Examples:
      >>> mtf.sample_with_temperature(mtf.zeros(mesh, "batch:4 vocab:16"), "vocab", temperature=0.8)
      argmax [batch:4] int32
    """
    own = reduced_dimension(check_tensor(logits), dim)
    if not logits.dtype.is_floating:
        raise DtypeError(f"logits must be floating, not {logits.dtype.name}; convert with mtf.cast")
    if not (isinstance(temperature, numbers.Real) and 0.0 <= temperature < math.inf):
        raise UsageError(f"the temperature must be a number of at least 0, known now, and is {temperature!r}")
    if not temperature:
        return argmax(logits, own, name=name)
    wide = logits if logits.dtype == tf.float64 else cast(logits, tf.float32)
    draw = functools.partial(random.gumbel, dtype=wide.dtype)
    noise = RandomOperation(logits.mesh, logits.shape, wide.dtype, draw, name or "sample_with_temperature")
    if logits.is_overridden:
        noise.lay_out_like(logits)
    return argmax(wide + temperature * noise.outputs[0], own)
