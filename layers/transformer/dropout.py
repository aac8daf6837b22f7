"""Dropout for sublayers and their surroundings."""

from __future__ import annotations

from collections.abc import Sequence

import meshtf as mtf


def dropped(
    x: mtf.Tensor,
    rate: float,
    broadcast_dims: Sequence[str],
    *,
    is_training: bool,
    depth: mtf.Tensor | None = None,
    name: str = "dropout",
) -> mtf.Tensor:
    """Zeroes elements of x at random in training, together along `broadcast_dims`.

    The rate is in [0, 1). With a depth [] from 0 to 1 it is `depth * rate`.

    Raises:
      ShapeError: x has no dimension of one of the names.
    """
    if not (is_training and rate):
        return x
    together = {x.shape.axis(dim) for dim in broadcast_dims}
    noise_shape = [dim for axis, dim in enumerate(x.shape) if axis not in together]
    if depth is None:
        return mtf.dropout(x, True, rate=rate, noise_shape=noise_shape, name=name)
    own_rate = depth * rate
    is_kept = mtf.random_uniform(x.mesh, noise_shape, name=name) >= own_rate
    return mtf.where(is_kept, x * mtf.cast(1.0 / (1.0 - own_rate), x.dtype), 0.0, output_shape=x.shape)
