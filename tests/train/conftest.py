"""A model and a task small enough to be trained many times."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gin
import numpy as np
import pytest

import meshtf as mtf
from meshtf.train import Training
from meshtf.train.data import ArrayTask
from meshtf.train.training import Metric

D_MODEL, LENGTH, NUM_TRAIN, NUM_HELD_OUT = 4, 6, 40, 11


@dataclasses.dataclass(frozen=True)
class TinyModel:
    """A dense layer with dropout, and a squared error that counts where `weights` are not 0."""

    hidden: int = 8
    dropout: float = 0.25

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Metric]:
        x, targets = features["x"], features["targets"]
        h = mtf.layers.dense(x, [mtf.Dimension("hidden", self.hidden)], activation=mtf.tanh, name="hidden")
        h = mtf.dropout(h, is_training, rate=self.dropout)
        y = mtf.layers.dense(h, [mtf.Dimension("out", 1)], name="out")
        error = mtf.reduce_sum(y, output_shape=targets.shape) - targets
        return {
            "loss": (mtf.square(error), features["targets_weights"]),
            "absolute": mtf.reduce_mean(mtf.abs(error), reduced_dim=mtf.Dimension("length", LENGTH)),
        }


def tiny_features(count: int, seed: int) -> dict[str, np.ndarray]:
    """Sequences of different lengths, of which the rest is padding."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, LENGTH, D_MODEL)).astype(np.float32)
    lengths = rng.integers(1, LENGTH + 1, size=count)
    weights = (np.arange(LENGTH) < lengths[:, None]).astype(np.float32)
    return {"x": x, "targets": np.sin(x.sum(-1)), "targets_weights": weights}


def tiny_task() -> ArrayTask:
    length = mtf.Dimension("length", LENGTH)
    shapes = {
        "x": mtf.Shape([length, ("d_model", D_MODEL)]),
        "targets": mtf.Shape([length]),
        "targets_weights": mtf.Shape([length]),
    }
    return ArrayTask("tiny", shapes, train=tiny_features(NUM_TRAIN, 0), held_out=tiny_features(NUM_HELD_OUT, 1))


@pytest.fixture(scope="session")
def tiny_training() -> Callable[..., Training]:
    """Makes a training of eight steps, with changes."""

    def make(**changes: Any) -> Training:
        values: dict[str, Any] = {
            "model": TinyModel(),
            "task": tiny_task(),
            "optimizer": mtf.optimize.AdamWOptimizer(0.05),
            "mesh_shape": "rows:2",
            "layout": "batch:rows",
            "batch_size": 8,
            "num_steps": 8,
            "log_every": 1,
            "checkpoint_every_minutes": None,
        }
        return Training(**{**values, **changes})

    return make


@pytest.fixture(autouse=True)
def _clear_gin() -> Iterator[None]:
    yield
    gin.clear_config()
