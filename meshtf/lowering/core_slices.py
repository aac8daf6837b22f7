"""Cuts an array into the slices of all cores, and joins the slices again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from meshtf.layout import TensorLayout
from meshtf.planning import core_positions
from meshtf.planning.plan import Plan


def joined(slices: Sequence[np.ndarray], layout: TensorLayout, plan: Plan) -> np.ndarray:
    """Joins the cores' slices to the whole array, including its padding.

    Raises:
      AssertionError: two cores hold the same block, and their slices differ.
    """
    blocks: dict[tuple[int, ...], np.ndarray] = {}
    for core, piece in enumerate(slices):
        first = blocks.setdefault(core_positions.block(core, layout.axes, plan.mesh_shape), piece)
        if first is not piece:
            assert_same(first, piece, f"core {core} disagrees with another that holds its block")
    shape = [n * len({b[i] for b in blocks}) for i, n in enumerate(slices[0].shape)]
    whole = np.empty(shape, slices[0].dtype)
    for position, piece in blocks.items():
        whole[tuple(slice(p * n, (p + 1) * n) for p, n in zip(position, piece.shape, strict=True))] = piece
    return whole


def split(whole: np.ndarray, layout: TensorLayout, plan: Plan) -> list[np.ndarray]:
    """Cuts a whole array into the slices of all cores, padded with zeros where a dimension does not divide."""
    parts = layout.parts(plan.mesh_shape)
    sizes = [-(-n // p) for n, p in zip(whole.shape, parts, strict=True)]
    missing = [s * p - n for n, s, p in zip(whole.shape, sizes, parts, strict=True)]
    whole = np.pad(whole, [(0, n) for n in missing]) if any(missing) else whole
    blocks = [core_positions.block(core, layout.axes, plan.mesh_shape) for core in range(plan.mesh_shape.size)]
    own = {
        block: whole[tuple(slice(p * n, (p + 1) * n) for p, n in zip(block, sizes, strict=True))] for block in {*blocks}
    }
    return [own[block] for block in blocks]


def assert_same(first: np.ndarray, other: np.ndarray, message: str) -> None:
    """Asserts that two arrays are equal, with NaN at the same places."""
    if first.dtype == tf.bfloat16.as_numpy_dtype:  # NumPy does not recognize its NaN
        first, other = first.astype(np.float32), other.astype(np.float32)
    if not has_same_bits(first, other):  # faster than NumPy's check
        np.testing.assert_array_equal(first, other, err_msg=message)


def has_same_bits(first: np.ndarray, other: np.ndarray) -> bool:
    """Whether two arrays of one dtype have the same shape and bits. So 0.0 is not -0.0, and a NaN can equal another."""
    return first.shape == other.shape and first.tobytes() == other.tobytes()
