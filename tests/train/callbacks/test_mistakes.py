"""Callbacks that cannot be: each is a message that names the gin parameter, before anything is written."""

from __future__ import annotations

import copy
import dataclasses
import importlib.util
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.train import Callback, Trainer, Training
from meshtf.train.callbacks import (
    BestCheckpoint,
    DecodedSamples,
    EarlyStopping,
    MlflowWriter,
    Profile,
    TensorBoard,
    WandbWriter,
)
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ArrayTask, ByteVocabulary
from tests.train.conftest import TinyModel, tiny_task

CONSTRUCTED: list[tuple[Callable[[], object], str]] = [
    (lambda: EarlyStopping(patience=0), "EarlyStopping.patience must be an integer, 1 or more, and is 0"),
    (lambda: EarlyStopping(patience=-1), "EarlyStopping.patience must be an integer, 1 or more, and is -1"),
    (lambda: EarlyStopping(patience=True), "EarlyStopping.patience must be an integer, 1 or more, and is True"),
    (lambda: EarlyStopping(patience=1.5), "EarlyStopping.patience must be an integer, 1 or more, and is 1.5"),
    (lambda: EarlyStopping(patience="3"), "EarlyStopping.patience must be an integer, 1 or more, and is '3'"),
    (lambda: EarlyStopping(min_delta=-0.1), "EarlyStopping.min_delta must be a number, 0 or more, and is -0.1"),
    (lambda: EarlyStopping(min_delta=math.nan), "EarlyStopping.min_delta must be a number, 0 or more, and is nan"),
    (lambda: EarlyStopping(min_delta=math.inf), "EarlyStopping.min_delta must be a number, 0 or more, and is inf"),
    (lambda: EarlyStopping(metric=""), "EarlyStopping.metric must be a name, such as \"loss\", and is ''"),
    (lambda: EarlyStopping(metric=None), 'EarlyStopping.metric must be a name, such as "loss", and is None'),
    (
        lambda: EarlyStopping(mode="mim"),
        'EarlyStopping.mode must be "min" or "max", and is \'mim\'; did you mean "min"?',
    ),
    (lambda: BestCheckpoint(mode=1), 'BestCheckpoint.mode must be "min" or "max", and is 1'),
    (
        lambda: BestCheckpoint(metric=["loss"]),
        "BestCheckpoint.metric must be a name, such as \"loss\", and is ['loss']",
    ),
    (lambda: Profile(0, 3), "Profile.first_step must be an integer, 1 or more, and is 0"),
    (lambda: Profile(5, 3), "Profile.last_step is 3, before first_step, 5"),
    (lambda: Profile(1, "3"), "Profile.last_step must be an integer, 1 or more, and is '3'"),
    (lambda: DecodedSamples("text"), "DecodedSamples.prompts must be a list of texts, and is 'text'"),
    (lambda: DecodedSamples(4), "DecodedSamples.prompts must be a list of texts, and is 4"),
    (lambda: DecodedSamples([]), "DecodedSamples.prompts must be a list of texts, and is []"),
    (lambda: DecodedSamples(["a", 1]), "DecodedSamples.prompts must be a list of texts, and is ['a', 1]"),
    (lambda: DecodedSamples(["a"], "beam"), "DecodedSamples.decoding is no Decoding: 'beam'; in gin @Decoding() makes"),
    (lambda: WandbWriter(project=""), "WandbWriter.project must be a text, and is ''"),
    (lambda: WandbWriter(run_name=3), "WandbWriter.run_name must be a text, or None, and is 3"),
    (lambda: WandbWriter(mode="ofline"), "and is 'ofline'; did you mean \"offline\"?"),
    (lambda: MlflowWriter(tracking_uri=5), "MlflowWriter.tracking_uri must be a text, or None, and is 5"),
    (lambda: MlflowWriter(experiment=None), "MlflowWriter.experiment must be a text, and is None"),
]


@pytest.mark.parametrize(("make", "message"), CONSTRUCTED, ids=[message[:60] for _, message in CONSTRUCTED])
def test_an_argument_that_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (None, "Training.callbacks must be a list, and is None"),
        (EarlyStopping(), "Training.callbacks must be a list, and is <"),
        ([EarlyStopping], "Training.callbacks[0] is no callback: <class "),
        (
            [TensorBoard(), "EarlyStopping"],
            "Training.callbacks[1] is no callback: 'EarlyStopping'; it must be an instance of",
        ),
        ([print], "in gin @Name() makes one, parentheses included"),
    ],
    ids=["none", "no list", "a class", "a name", "a function"],
)
def test_what_is_no_callback(callbacks: Any, message: str, tiny_training: Callable[..., Training]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        tiny_training(callbacks=callbacks)
    assert message in str(caught.value)


def test_what_does_not_fit_the_training_is_told_before_it_begins(
    tiny_training: Callable[..., Training], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n in ("wandb", "mlflow") else real(n))
    trainer = Trainer(tiny_training(evaluate_every=2))
    known = "It is one of the metrics of the held-out examples: loss, absolute."
    cases: list[tuple[Callback, dict[str, Any], list[str]]] = [
        (EarlyStopping("los"), {}, ["EarlyStopping.metric is 'los'", 'did you mean "loss"?', known]),
        (EarlyStopping("held_out_loss"), {}, ["which the model does not give", 'did you mean "loss"?', known]),
        (BestCheckpoint("bits_per_byte"), {}, ["BestCheckpoint.metric is 'bits_per_byte'", known]),
        (BestCheckpoint(), {"evaluate_every": None}, ["the only one is at the end: make Training.evaluate_every"]),
        (EarlyStopping(), {"evaluate_every": 8}, ["less than Training.num_steps, 8."]),
        (Profile(7, 9), {}, ["Profile.last_step is 9, and Training.num_steps 8: give steps up to it"]),
        (DecodedSamples(["a"]), {}, ["TinyModel cannot be decoded: it does not predict text token by token"]),
        (WandbWriter(), {}, ["WandbWriter needs Weights & Biases", "pip install 'meshtf[wandb]'"]),
        (MlflowWriter(), {}, ["MlflowWriter needs MLflow", "pip install 'meshtf[mlflow]'"]),
    ]
    for callback, changes, words in cases:
        other = copy.copy(trainer)
        other.training = dataclasses.replace(trainer.training, **changes)
        with pytest.raises(ConfigurationError) as caught:
            callback.check(other)
        for text in words:
            assert text in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"EarlyStopping\.metric is 'los'"):
        Trainer(tiny_training(callbacks=[EarlyStopping("los")]))


class ModelOfSeveralKinds(TinyModel):
    """It also has an area under the curve, and a metric of all held-out examples together."""

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
        found = super().metrics(features, is_training)
        scores = features["targets"].sum("length")
        area = {"area": {"scores": scores, "labels": scores}, "sums": features["targets"].sum("batch")}
        return {**found, **({} if is_training else area)}

    def held_out_metrics(self, vectors: dict[str, np.ndarray]) -> dict[str, float]:
        return {"largest": float(vectors["sums"].max())} if vectors["sums"].any() else {}


class TaskOfTwo(ArrayTask):
    def parts_of_evaluation(self, batch_size: int) -> Iterator[str]:
        yield from ("first", "second")


@pytest.mark.parametrize("metric", ["area", "largest", "second/loss", "loss"])
def test_every_metric_of_an_evaluation_may_be_watched(metric: str, tiny_training: Callable[..., Training]) -> None:
    task = tiny_task()
    parts = TaskOfTwo(task.name, task.shapes, task.train, task.held_out)
    for callback in (EarlyStopping(metric, "max"), BestCheckpoint(metric, "max")):
        Trainer(tiny_training(model=ModelOfSeveralKinds(), task=parts, evaluate_every=2, callbacks=[callback]))
    known = "loss, absolute, area, largest, first/loss, first/absolute, second/loss, second/absolute."
    with pytest.raises(ConfigurationError, match=rf'did you mean "{metric}"\?\n.*: {known}'):
        Trainer(tiny_training(model=ModelOfSeveralKinds(), task=parts, callbacks=[EarlyStopping(f"{metric}s")]))


class TaskOfIds(ArrayTask):
    """It has a vocabulary, as that of labelled texts, whose targets stand for no text."""

    vocabulary = ByteVocabulary()  # type: ignore[assignment]


class TaskOfText(TaskOfIds):
    def num_bytes(self, _: Mapping[str, Any]) -> int:  # type: ignore[override]
        return 1


@pytest.mark.parametrize("kind", [TaskOfIds, TaskOfText])
def test_only_a_task_of_text_has_bits_per_byte(kind: type[ArrayTask], tiny_training: Callable[..., Training]) -> None:
    task = tiny_task()
    trainer = Trainer(tiny_training(task=kind(task.name, task.shapes, task.train, task.held_out)))
    evaluation = trainer.evaluate()
    assert evaluation is not None
    assert trainer.held_out_metrics() == [*evaluation.means]
