"""Whole arrays to slices by core, and back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import meshtf as mtf
from meshtf.planning import core_positions
from meshtf.planning.plan import Value


def cut(array: np.ndarray, value: Value, mesh_shape: mtf.Shape) -> list[np.ndarray]:
    """A whole array by core, in the layout of a value; zeros where the slices reach beyond it."""
    whole = np.zeros(_padded(value, mesh_shape), array.dtype)
    whole[tuple(slice(n) for n in array.shape)] = array
    return [whole[_box(core, value, mesh_shape)] for core in range(mesh_shape.size)]


def joined(slices: Sequence[np.ndarray], value: Value, mesh_shape: mtf.Shape, sizes: Sequence[int]) -> np.ndarray:
    """The whole array, of these sizes. Slices that should be alike must be, to the bit."""
    whole = np.empty(_padded(value, mesh_shape), slices[0].dtype)
    first: dict[tuple[int, ...], np.ndarray] = {}
    for core, piece in enumerate(slices):
        block = core_positions.block(core, value.layout.axes, mesh_shape)
        np.testing.assert_array_equal(piece, first.setdefault(block, piece), f"core {core} disagrees on {value}")
        whole[_box(core, value, mesh_shape)] = piece
    return whole[tuple(slice(n) for n in sizes)]


def _padded(value: Value, mesh_shape: mtf.Shape) -> list[int]:
    return [n * parts for n, parts in zip(value.slice_shape, value.layout.parts(mesh_shape), strict=True)]


def _box(core: int, value: Value, mesh_shape: mtf.Shape) -> tuple[slice, ...]:
    block = core_positions.block(core, value.layout.axes, mesh_shape)
    return tuple(slice(b * n, (b + 1) * n) for b, n in zip(block, value.slice_shape, strict=True))
