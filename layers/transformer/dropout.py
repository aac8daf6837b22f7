"""Dropout for sublayers and their surroundings."""

from __future__ import annotations

from collections.abc import Sequence

import meshtf as mtf


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
    together = {x.shape.axis(dim) for dim in broadcast_dims}
    noise_shape = [dim for axis, dim in enumerate(x.shape) if axis not in together]
    return mtf.dropout(x, True, rate=rate, noise_shape=noise_shape, name=name)
