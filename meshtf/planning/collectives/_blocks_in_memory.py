"""Helpers that several kinds of collectives share: the bytes of a reordering copy, and a loop over groups of cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from meshtf.planning.plan import Value


def bytes_to_reorder(dim: int, value: Value) -> int:
    """Bytes of a copy that cuts a dimension into blocks, or joins them: none where the dimension leads in memory."""
    return 0 if math.prod(value.slice_shape[:dim]) == 1 else value.slice_bytes


def in_each_group(
    slices: Sequence[np.ndarray],
    groups: Sequence[Sequence[int]],
    received: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]],
) -> list[np.ndarray]:
    """Calls `received` once for each group, with the group's slices, and returns the new slice of every core."""
    result = list(slices)
    for group in groups:
        for core, array in zip(group, received([slices[core] for core in group]), strict=True):
            result[core] = array
    return result
