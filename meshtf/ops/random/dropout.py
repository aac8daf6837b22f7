"""Dropout, the same under every layout."""

from __future__ import annotations

import tensorflow as tf

from meshtf import random
from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike
from meshtf.errors import DtypeError, GraphError
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.elementwise.where import where
from meshtf.ops.random._drawn_ranges import Draw
from meshtf.ops.random.random_operation import RandomOperation


@language_function
def dropout(
    x: Tensor,
    is_training: bool,
    keep_prob: float | None = None,
    rate: float | None = None,
    noise_shape: ShapeLike | None = None,
    name: str = "dropout",
) -> Tensor:
    """Zeroes elements with probability `rate` (or 1 - `keep_prob`) and scales the others to keep the mean.

    Args:
      x: a floating tensor; any dtype if nothing is dropped.
      is_training: whether elements are dropped. If not, the result is x itself.
      keep_prob: give this or `rate`.
      rate: give this or `keep_prob`.
      noise_shape: dimensions of x along which elements are dropped independently. Along others, all share one choice.
      name: the operation's name, part of the random key.

    Raises:
      GraphError: neither or both probabilities are given, `keep_prob` is not in (0, 1], or `rate` not in [0, 1).
      DtypeError: elements are dropped, and x is not floating.
      ShapeError: `noise_shape` has a dimension that x lacks.

    Examples:
      >>> y = mtf.dropout(x, is_training=True, rate=0.1)
      >>> whole_examples = mtf.dropout(x, is_training=True, rate=0.1, noise_shape="batch")
      >>> mtf.dropout(x, is_training=False, rate=0.1) is x
      True
    """
    if (keep_prob is None) == (rate is None):
        raise GraphError("give exactly one of keep_prob and rate")
    given = rate if keep_prob is None else keep_prob
    if not hasattr(given, "__float__"):
        raise GraphError(f"the probability must be a number, and is {given!r}")
    keep = float(keep_prob if keep_prob is not None else 1.0 - rate)  # type: ignore[operator]
    if not 0.0 < keep <= 1.0:
        bounds = "keep_prob must be in (0, 1]" if rate is None else "rate must be in [0, 1)"
        raise GraphError(f"{bounds}, and is {given}")
    check_tensor(x)
    if not is_training or keep == 1.0:
        return x
    if not x.dtype.is_floating:
        raise DtypeError(f"dropout scales what it keeps, and cannot scale {x.dtype.name}; convert it with mtf.cast")
    shape = x.shape if noise_shape is None else x.shape.only(noise_shape)
    mask = RandomOperation(x.mesh, shape, tf.bool, _keep_mask(keep), name).outputs[0]
    return where(mask, x * (1.0 / keep), 0.0, output_shape=x.shape)


def _keep_mask(keep: float) -> Draw:
    return lambda *where: random.keep_mask(*where, keep_prob=keep)
