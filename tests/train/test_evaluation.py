"""Means over held-out examples are exact: each counts once, padding never."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.testing import assert_close
from meshtf.train import Evaluation, Trainer, Training
from meshtf.train.data import ArrayTask
from meshtf.train.evaluation import Evaluator
from meshtf.train.trainer import mesh_of

Make = Callable[..., Training]


class SumModel:
    """Metrics that NumPy computes as well. The loss is infinite on padding."""

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
        weights = features["targets_weights"]
        total = mtf.reduce_sum(features["x"], output_shape=weights.shape)
        return {
            "loss": (total / weights, weights),
            "example": mtf.reduce_sum(total, output_shape=[weights.shape.dims[0]]),
            "element": features["x"],
            "fixed": mtf.constant(weights.mesh, 3.0),
            "untrained": mtf.constant(weights.mesh, float(is_training)),
        }


def evaluated(training: Training) -> Evaluation:
    evaluation = Evaluator(training, mesh_of(training)).evaluate()
    assert evaluation is not None
    return evaluation


@pytest.mark.parametrize("batch_size", [4, 8, 12])
def test_means_are_those_of_all_examples_whatever_the_batch_size(tiny_training: Make, batch_size: int) -> None:
    """Eleven examples: no batch size divides them."""
    training = tiny_training(model=SumModel(), batch_size=batch_size)
    held_out = training.task.held_out  # type: ignore[attr-defined]
    x, weights = held_out["x"].astype(np.float64), held_out["targets_weights"]
    evaluation = evaluated(training)
    assert evaluation.num_examples == 11
    expected = {
        "loss": (x.sum(-1) * weights).sum() / weights.sum(),
        "example": x.sum((1, 2)).mean(),
        "element": x.mean(),
        "fixed": 3.0,
        "untrained": 0.0,
    }
    assert evaluation.means.keys() == expected.keys()
    for name, value in expected.items():
        magnitude = max(np.abs(x).sum((1, 2)).mean(), value)  # of a sum in which signs differ
        assert_close(evaluation.means[name], value, terms=x.size, magnitude=magnitude, dtype="float32", what=name)


def test_vectors_of_a_batch_count_as_often_as_it_has_examples(tiny_training: Make) -> None:
    """The last batch has three, and no padding."""

    class Vectors:
        def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
            x = mtf.rename_dimension(features["x"], "length", "layers")
            w = mtf.get_variable(x.mesh, "w", [], initializer=mtf.ones)
            return {"loss": x * w, "largest": mtf.reduce_max(x, output_shape=x.shape[1:])}

    training = tiny_training(model=Vectors(), batch_size=4)
    x = training.task.held_out["x"].astype(np.float64)  # type: ignore[attr-defined]
    largest = [x[start : start + 4].max(0) for start in (0, 4, 8)]
    evaluation = evaluated(training)
    assert set(evaluation.means) == {"loss"}
    assert_close(evaluation.vectors["largest"], np.average(largest, 0, [4, 4, 3]), terms=4, dtype="float32")


def test_bits_per_byte_count_the_bytes_of_the_targets(tiny_training: Make) -> None:
    class Text(ArrayTask):
        def num_bytes(self, features: Mapping[str, Any]) -> int:
            return 2 * int(np.asarray(features["targets_weights"]).sum())

    task = tiny_training().task
    assert isinstance(task, ArrayTask)
    evaluation = evaluated(
        tiny_training(model=SumModel(), task=Text(task.name, task.shapes, task.train, task.held_out), batch_size=8)
    )
    assert_close(
        evaluation.means["bits_per_byte"], evaluation.means["loss"] / math.log(2) / 2, terms=4, dtype="float32"
    )
    assert str(evaluation).endswith("(on 11 held-out examples)")


def test_a_metric_of_which_nothing_counts_has_no_mean(tiny_training: Make) -> None:
    class Nothing:
        def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
            weights = features["targets_weights"]
            return {"loss": (weights, weights * 0.0), "all": weights}

    assert set(evaluated(tiny_training(model=Nothing())).means) == {"all"}


def test_an_evaluation_may_be_stopped(tiny_training: Make) -> None:
    trainer = Trainer(tiny_training())
    answers = iter([False, True])
    assert trainer.evaluate(lambda: next(answers)) is None
