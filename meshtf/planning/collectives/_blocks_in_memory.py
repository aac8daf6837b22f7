"""What kinds of collectives have in common: when blocks need a copy, and groups of cores one by one."""

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
    """By core, what a function of a group's slices gives for each of its cores."""
    result = list(slices)
    for group in groups:
        for core, array in zip(group, received([slices[core] for core in group]), strict=True):
            result[core] = array
    return result
