"""Experts trained on virtual CPUs, and moved between meshes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, restore
from meshtf.layers.attention import AttentionMask, Tokens
from meshtf.layers.moe import Capacity, MixtureOfExperts
from meshtf.layers.transformer import Context
from meshtf.testing import FUNCTION_TERMS, assert_close

SHAPE = mtf.Shape([("batch", 8), ("length", 8), ("d_model", 8)])
TERMS = (2 * (8 + 8 + 16 + 4 * FUNCTION_TERMS), SHAPE.size, 4 * FUNCTION_TERMS)
"""Roundings of one step: through router and experts and back, a sum over all elements, the update of each weight."""


def train_step(x: mtf.Tensor) -> mtf.Tensor:
    layer = MixtureOfExperts(8, 16, capacity=Capacity(2.0))
    y, seen = layer.observed(x, Context(AttentionMask(), Tokens(), is_training=True))
    loss = mtf.reduce_mean(mtf.square(y - x)) + seen["auxiliary_loss"]
    mtf.optimize.AdamWOptimizer(1e-2).minimize(loss)
    return loss


def made(shards: int) -> mtf.Function:
    mesh_impl = mtf.SpmdMeshImpl(f"all:{shards}", "batch:all;experts:all")
    return mtf.function(train_step, mesh_impl, inputs={"x": mtf.TensorSpec(SHAPE)})


@pytest.mark.parametrize("shards", [[4, 1], pytest.param([4, 8, 1], marks=pytest.mark.long)], ids=str)
def test_checkpoints_move_between_shards_of_the_experts(tmp_path: Path, shards: list[int]) -> None:
    x = np.random.default_rng(0).normal(size=SHAPE.to_integer_list).astype(np.float32)
    reference = made(1)
    expected = [float(reference(x=x)) for _ in shards]
    losses, folder = [], CheckpointFolder(tmp_path, keep=5)
    for number, count in enumerate(shards):
        step = reference if count == 1 else made(count)
        if number:
            restore(folder.newest_readable(), [step])
        losses.append(float(step(x=x)))
        for name in step.variables:
            if "kernel" in name:
                pieces = step.variables.slices(name).slices.values()
                assert {tuple(piece.shape) for piece in pieces} in ({(8 // count, 8, 16)}, {(8 // count, 16, 8)})
        folder.save(number, step.variables, {})
    assert_close(losses, expected, terms=TERMS, steps=np.arange(len(shards)), dtype="float32")
    assert losses[-1] < losses[0]
