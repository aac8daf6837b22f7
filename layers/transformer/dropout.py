"""Dropout for sublayers and their surroundings."""

from __future__ import annotations

from collections.abc import Sequence

import meshtf as mtf
from meshtf.errors import GraphError


def dropped(
    x: mtf.Tensor, rate: float, broadcast_dims: Sequence[str], *, is_training: bool, name: str = "dropout"
) -> mtf.Tensor:
    """x, with elements zeroed at random in training: together along the dimensions of these names.

    Raises:
      ShapeError: x has no dimension of one of the names.
      GraphError: the rate is not in [0, 1).
    """
    if not (is_training and rate):
        return x
    return mtf.dropout(x, True, rate=rate, noise_shape=_drawn_apart(x, broadcast_dims), name=name)


def dropped_at_depth(
    x: mtf.Tensor,
    last_rate: float,
    broadcast_dims: Sequence[str],
    *,
    depth: mtf.Tensor,
    is_training: bool,
    name: str = "dropout",
) -> mtf.Tensor:
    """x, with elements zeroed as by `dropped`, at the rate `depth * last_rate`. `depth` [] is from 0 to 1.

    Raises:
      ShapeError: x has no dimension of one of the names.
      GraphError: the last rate is not in [0, 1).
    """
    if not 0.0 <= last_rate < 1.0:
        raise GraphError(f"the rate of dropout must be in [0, 1), and is {last_rate}")
    if not (is_training and last_rate):
        return x
    rate = depth * last_rate
    drawn = mtf.random_uniform(x.mesh, _drawn_apart(x, broadcast_dims), name=name)
    return mtf.where(drawn >= rate, x * mtf.cast(1.0 / (1.0 - rate), x.dtype), 0.0, output_shape=x.shape)


def _drawn_apart(x: mtf.Tensor, broadcast_dims: Sequence[str]) -> list[mtf.Dimension]:
    """The dimensions along which elements are dropped independently."""
    together = {x.shape.axis(dim) for dim in broadcast_dims}
    return [dim for axis, dim in enumerate(x.shape) if axis not in together]
