"""Averages of weights, taken from a checkpoint in place of the weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import optimize
from meshtf.checkpoint import CheckpointFolder, SavedCheckpoint
from meshtf.train import RunFolder, Trainer, Training
from meshtf.train.configuration import ConfigurationError
from meshtf.train.runs.saved_weights import Weights, averages_in, sources_in
from meshtf.train.step_programs import evaluation_step
from meshtf.train.trainer import mesh_of

Make = Callable[..., Training]

LAYERS, D_MODEL = mtf.Dimension("layers", 3), mtf.Dimension("d_model", 4)
SGD = optimize.SgdOptimizer(0.1)


def saved_by(trainer: Trainer, folder: RunFolder) -> None:
    """After two steps."""
    batches = trainer.training.task.training_batches(trainer.training.batch_size, 0, None)
    for _, batch in zip(range(2), batches, strict=False):
        trainer.train_step(**batch)
    folder.checkpoints().save(2, trainer.variables, {})


def test_averages_in_place_of_weights_on_another_mesh(tiny_training: Make, tmp_path: Path) -> None:
    averaging = tiny_training(optimizer=optimize.MovingAverageOptimizer(SGD, 0.5))
    trainer, folder = Trainer(averaging), RunFolder(tmp_path)
    saved_by(trainer, folder)
    program = evaluation_step(averaging, mesh_of(tiny_training(mesh_shape="rows:4", layout="hidden:rows")))
    for weights, suffix in (("average", "/ema"), ("trained", "")):
        assert folder.restore(program, weights=weights) == 2
        for name in ("hidden/kernel", "out/bias"):
            np.testing.assert_array_equal(program.variables[name], trainer.variables[f"{name}{suffix}"])
    assert not [name for name in program.variables if name.endswith("/ema")]


def test_a_run_without_averages(tiny_training: Make, tmp_path: Path) -> None:
    training, folder = tiny_training(optimizer=SGD), RunFolder(tmp_path)
    saved_by(Trainer(training), folder)
    program = evaluation_step(training, mesh_of(training))
    with pytest.raises(ConfigurationError, match="has no averages of the weights") as caught:
        folder.restore(program, weights="average")
    assert "no tensor in it is called <name>/ema" in str(caught.value)
    assert "--weights=trained" in str(caught.value)
    assert "hidden/kernel" not in program.variables


def trained_stack(
    tmp_path: Path, dtype: mtf.VariableDType | None = None, *, unroll: bool
) -> tuple[mtf.Function, SavedCheckpoint]:
    """A program with a stack of layers and a weight that is not trained, and what was saved of it after a step."""

    def step(mesh: mtf.Mesh) -> mtf.Tensor:
        def layer(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            return [carried[0] * mtf.get_variable(mesh, "w", [D_MODEL], dtype)], []

        frozen = mtf.get_variable(mesh, "frozen", [D_MODEL], dtype)
        (y,), _ = mtf.layer_stack(layer, frozen, LAYERS, unroll=unroll)
        loss = mtf.reduce_sum(y)
        groups = optimize.ParameterGroups([("frozen", optimize.FrozenOptimizer())], SGD)
        optimize.MovingAverageOptimizer(groups, 0.5).minimize(loss)
        return loss

    program = mtf.function(step, mtf.SpmdMeshImpl("all:1", ""), inputs={})
    program()
    folder = CheckpointFolder(tmp_path)
    folder.save(1, program.variables, {})
    return program, folder.open(1)


@pytest.mark.parametrize("unroll", [False, True])
def test_layers_have_averages_of_their_own_and_frozen_weights_none(tmp_path: Path, unroll: bool) -> None:
    program, saved = trained_stack(tmp_path, unroll=unroll)
    assert averages_in(saved, program, {}) == {f"layer_{i:03d}/w": f"layer_{i:03d}/w/ema" for i in range(3)}


def test_averages_are_more_precise_than_narrow_weights(tmp_path: Path) -> None:
    narrow = mtf.VariableDType(tf.bfloat16, activation_dtype=tf.float32)
    program, saved = trained_stack(tmp_path, narrow, unroll=True)
    with pytest.raises(ConfigurationError, match="layer_000/w is bfloat16, and its average float32"):
        averages_in(saved, program, {})


def test_a_model_in_a_scope_has_the_names_of_the_checkpoint(tmp_path: Path) -> None:
    """Also its averages."""
    _, saved = trained_stack(tmp_path, unroll=True)

    def scoped(mesh: mtf.Mesh) -> None:
        with mtf.variable_scope("draft"):
            for layer in range(3):
                mtf.get_variable(mesh, f"layer_{layer:03d}/w", "n:2")

    program = mtf.function(scoped, mtf.SpmdMeshImpl("all:1", ""), inputs={})
    names = [f"layer_{layer:03d}/w" for layer in range(3)]
    assert sources_in(saved, program, Weights.TRAINED, "draft") == {f"draft/{name}": name for name in names}
    averages = {f"draft/{name}": f"{name}/ema" for name in names}
    assert sources_in(saved, program, Weights.AVERAGE, "draft") == averages
    assert sources_in(saved, program, Weights.TRAINED) == {}
