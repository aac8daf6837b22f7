"""The digits are learnt alike under every layout, step by step."""

from __future__ import annotations

from collections.abc import Iterator

import gin
import numpy as np
import pytest

from meshtf.testing import FUNCTION_TERMS, assert_close
from meshtf.train import Trainer
from meshtf.train.configuration import find_gin_file, read_configuration
from meshtf.train.training import configured_training

NUM_STEPS = 50

ONE_CORE = ("cores:1", "")
MESHES_AND_LAYOUTS = [
    pytest.param("cores:8", "batch:cores", marks=pytest.mark.long),
    pytest.param("cores:8", "hidden:cores", marks=pytest.mark.long),
    ("rows:2;cols:4", "batch:rows;hidden:cols"),
    pytest.param("rows:2;cols:4", "batch:rows+cols", marks=pytest.mark.long),
    pytest.param("rows:2;cols:4", "hidden:cols+rows", marks=pytest.mark.long),
]
TERMS = (2 * (64 + 512 + 10 + 2 * FUNCTION_TERMS), 64, 4 * FUNCTION_TERMS)
"""Roundings of one step: two layers and the classes, there and back, a sum over the batch, the update."""


def losses_under(mesh_shape: str, layout: str) -> np.ndarray:
    """The loss of each of the first steps, [NUM_STEPS]."""
    overrides = [f'Training.mesh_shape = "{mesh_shape}"', f'Training.layout = "{layout}"']
    read_configuration([find_gin_file("digits_mlp.gin")], overrides)
    trainer = Trainer(configured_training())
    training = trainer.training
    batches = training.task.training_batches(training.batch_size, training.seed)
    return np.array([trainer.train_step(**next(batches))["loss"] for _ in range(NUM_STEPS)])


@pytest.fixture(scope="module", autouse=True)
def _clear_gin() -> Iterator[None]:
    yield
    gin.clear_config()


@pytest.fixture(scope="module")
def losses_on_one_core() -> np.ndarray:
    return losses_under(*ONE_CORE)


def test_training_learns(losses_on_one_core: np.ndarray) -> None:
    """Else equal losses would say little."""
    assert losses_on_one_core[-1] < 0.2 * losses_on_one_core[0]


@pytest.mark.plain_cpu
@pytest.mark.parametrize(("mesh_shape", "layout"), MESHES_AND_LAYOUTS)
def test_losses_are_those_of_one_core(mesh_shape: str, layout: str, losses_on_one_core: np.ndarray) -> None:
    losses = losses_under(mesh_shape, layout)
    assert_close(losses, losses_on_one_core, terms=TERMS, steps=np.arange(NUM_STEPS), dtype="float32")
