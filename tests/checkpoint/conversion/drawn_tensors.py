"""Numbers for tensors, from their names alone, alike in every process and release of NumPy."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np


def values_of(name: str, shape: Sequence[int]) -> np.ndarray:
    """float32 [shape]; `RandomState`'s stream is frozen. Scales of norms are about 1."""
    drawn = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(tuple(shape))
    return (0.4 * drawn + ("norm" in name.lower() and "weight" in name)).astype(np.float32)
