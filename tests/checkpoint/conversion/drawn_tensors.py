"""Numbers for tensors, from their names alone, alike in every process and release of NumPy."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np

SIDES = (64, 60)
"""The height and the width of images, of which the last stage of a residual network has 2."""


def values_of(name: str, shape: Sequence[int]) -> np.ndarray:
    """float32 [shape]; `RandomState`'s stream is frozen. Scales of norms are about 1."""
    drawn = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(tuple(shape))
    return (0.4 * drawn + ("norm" in name.lower() and "weight" in name)).astype(np.float32)


def weights_of(name: str, shape: Sequence[int]) -> np.ndarray:
    """The numbers of a tensor of a residual network. Kernels keep the size of numbers, and variances are positive."""
    if name.endswith("num_batches_tracked"):
        return np.array(7, np.int64)
    drawn = values_of(name, shape)
    if name.endswith("running_var"):
        return 0.5 + np.abs(drawn)
    if len(shape) == 4:
        return drawn * np.float32(2.5 * math.sqrt(2.0 / math.prod(shape[1:])))
    is_scale = len(shape) == 1 and name.endswith("weight") and "norm" not in name
    return drawn + np.float32(is_scale)


def images_of(channels: int) -> np.ndarray:
    """Two images, float32 [2, channels, height, width]."""
    return np.random.RandomState(1).standard_normal([2, channels, *SIDES]).astype(np.float32)


def square_images(side: int) -> np.ndarray:
    """Two images, float32 [2, 3, side, side]."""
    return np.random.RandomState(2).standard_normal([2, 3, side, side]).astype(np.float32)
