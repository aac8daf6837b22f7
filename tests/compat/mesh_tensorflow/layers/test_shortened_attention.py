"""Attention to blocks and to means of positions is NumPy's, with the variable qkvo."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.testing import assert_close
from tests.compat.mesh_tensorflow.sessions import MESHES, evaluated, initial

BATCH, BLOCKS, LENGTH, IO, KV = (
    mtf.Dimension(n, s) for n, s in (("batch", 4), ("blocks", 3), ("length", 4), ("io", 8), ("kv", 4))
)
HEADS = mtf.Dimension("hidden", 2)  # the name that the meshes of these tests split
TERMS = (8, 4, 32, 8, 8)


def _attended(x: np.ndarray, memory: np.ndarray, seen: Any, name: str) -> np.ndarray:
    """For queries [b, l, i] and a memory [b, m, i], with the mask [l, m]."""
    q, k, v, o = initial(f"{name}/qkvo", [4, 2, 8, 4]).astype(np.float64)
    scores = np.einsum("bli,hik,bmj,hjk->bhlm", x, q, memory, k, optimize=True)
    weights = np.exp(scores) * seen
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("bhlm,bmi,hik,hjk->blj", weights, memory, v, o, optimize=True)


@pytest.mark.parametrize("mask_right", [True, False])
@pytest.mark.parametrize("mesh_name", MESHES)
def test_blocks(mesh_name: str, mask_right: bool) -> None:
    """A block sees itself and its neighbours, beyond the ends zeros."""
    x = initial("x", [4, 3, 4, 8])

    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        blocks = mtf.import_tf_tensor(mesh, x, [BATCH, BLOCKS, LENGTH, IO])
        return mtf.layers.local_self_attention_spatial_blocks(
            blocks, KV, HEADS, is_training=True, mask_right=mask_right, name="a"
        )

    found = evaluated(program, mesh_name)
    padded = np.pad(x.reshape(4, 12, 8), [(0, 0), (4, 4), (0, 0)])
    for i in range(3):
        memory = padded[:, 4 * i : 4 * i + (8 if mask_right else 12)]
        seen = np.tril(np.ones([4, 8]), 4) if mask_right else 1.0
        assert_close(found[:, i], _attended(x[:, i], memory, seen, "a"), terms=TERMS)


@pytest.mark.parametrize("mask_right", [True, False])
@pytest.mark.parametrize("mesh_name", MESHES)
def test_means_of_positions(mesh_name: str, mask_right: bool) -> None:
    """A key and a value of zeros are always seen."""
    x = initial("x", [4, 4, 8])

    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        positions = mtf.import_tf_tensor(mesh, x, [BATCH, LENGTH, IO])
        return mtf.layers.multihead_self_attention_memory_compressed(
            positions, mask_right, 2, KV, HEADS, is_training=True, name="c"
        )

    memory = np.pad(x.reshape(4, 2, 2, 8).mean(2), [(0, 0), (0, 1), (0, 0)])
    seen = np.array([[0, 0, 1], [1, 0, 1], [1, 0, 1], [1, 1, 1]]) if mask_right else 1.0
    assert_close(evaluated(program, mesh_name), _attended(x, memory, seen, "c"), terms=TERMS)
