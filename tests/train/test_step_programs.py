"""One step: the loss of a whole batch, in however many parts, and what is refused."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, LayoutWarning, NonFiniteError
from meshtf.quantization import Quantization, QuantizationAware
from meshtf.testing import FUNCTION_TERMS, assert_close
from meshtf.train import Trainer, Training
from meshtf.train._metric_sums import MetricError
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ByteVocabulary
from meshtf.train.step_programs import GRADIENT_NORM, LOSS

Make = Callable[..., Training]
TERMS = (2 * (4 + 8 + FUNCTION_TERMS), 8 * 6, 4 * FUNCTION_TERMS)
"""Roundings of one step of the tiny model: two layers, there and back, a sum over the batch's elements, the update."""


def losses(trainer: Trainer, num_steps: int = 4) -> list[float]:
    training = trainer.training
    batches = training.task.training_batches(training.batch_size, training.seed)
    return [float(trainer.train_step(**next(batches))[LOSS]) for _ in range(num_steps)]


@pytest.fixture(scope="module")
def plain_losses(tiny_training: Make) -> list[float]:
    """Of a training without any option."""
    return losses(Trainer(tiny_training()))


def with_loss(metric: Callable[[mtf.Tensor, mtf.Tensor], Any], name: str = LOSS) -> Any:
    """A model of one weight; `metric` takes the weighted inputs [batch, length, d_model] and the targets' weights."""

    class Model:
        def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
            w = mtf.get_variable(features["x"].mesh, "w", [], initializer=mtf.ones)
            return {name: metric(features["x"] * w, features["targets_weights"])}

    return Model()


def test_microbatches_give_the_losses_of_the_whole_batch(tiny_training: Make, plain_losses: list[float]) -> None:
    """With dropout, and parts of which different numbers of targets count."""
    parts = losses(Trainer(tiny_training(num_microbatches=4)))
    assert_close(parts, plain_losses, terms=TERMS, steps=np.arange(len(parts)), dtype="float32")


def test_the_range_of_an_activation_is_the_mean_over_microbatches(tiny_training: Make) -> None:
    """Micro-batch k holds every fourth example from the k-th on. Evaluations read the range, too."""
    policy = QuantizationAware(Quantization(activations="static"))
    trainer = Trainer(tiny_training(quantization_aware=policy, num_microbatches=4))
    batch = next(trainer.training.task.training_batches(8, 0))
    trainer.train_step(**batch)
    largest = [np.abs(np.asarray(batch["x"])[k::4]).max() for k in range(4)]
    assert_close(trainer.variables["hidden/kernel/input_range"], np.mean(largest), terms=4)
    assert "hidden/kernel/input_range" in trainer.evaluation_step.graph.variables


def test_the_loss_is_divided_by_the_targets_that_count(tiny_training: Make) -> None:
    training = tiny_training(
        model=with_loss(lambda x, weights: (mtf.reduce_sum(x, output_shape=weights.shape), weights))
    )
    batch = next(training.task.training_batches(training.batch_size, training.seed))
    x, weights = batch["x"].numpy(), batch["targets_weights"].numpy()
    expected = (x.sum(-1) * weights).sum() / weights.sum()
    assert_close(
        float(Trainer(training).train_step(**batch)[LOSS]),
        expected,
        terms=x.size,
        magnitude=(np.abs(x).sum(-1) * weights).sum() / weights.sum(),
        dtype="float32",
    )


def test_a_tensor_stands_for_the_mean_of_its_elements(tiny_training: Make) -> None:
    training = tiny_training(model=with_loss(lambda x, weights: x), num_microbatches=2)
    batch = next(training.task.training_batches(training.batch_size, training.seed))
    loss = float(Trainer(training).train_step(**batch)[LOSS])
    assert_close(loss, batch["x"].numpy().mean(), terms=8 * 6 * 4, dtype="float32")


def test_scalars_of_the_model_come_with_the_loss_as_means_over_microbatches(tiny_training: Make) -> None:
    """A share that grows from example to example, so that parts of the batch differ."""

    class Model:
        def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
            x = features["x"]
            w = mtf.get_variable(x.mesh, "w", [], initializer=mtf.ones)
            return {LOSS: x * w, "layer/share": (mtf.reduce_mean(x), mtf.ones(x.mesh, [])), "plain": mtf.reduce_max(x)}

    for num_microbatches in (1, 4):
        training = tiny_training(model=Model(), num_microbatches=num_microbatches)
        batch = next(training.task.training_batches(training.batch_size, training.seed))
        results = Trainer(training).train_step(**batch)
        assert_close(float(results["layer/share"]), batch["x"].numpy().mean(), terms=8 * 6 * 4, dtype="float32")
        if num_microbatches == 1:
            assert float(results["plain"]) == batch["x"].numpy().max()


class WithVectors:
    """Has a number for each of four places, and two rows of them."""

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
        x = features["x"]
        w = mtf.get_variable(x.mesh, "w", [], initializer=mtf.ones)
        places = mtf.reduce_mean(x, output_shape=x.shape[-1:])
        rows = mtf.stack([places, 2.0 * places], "layers")
        return {LOSS: x * w, "places": places, "rows": (rows, mtf.ones_like(rows)), "element": x}


@pytest.mark.parametrize("num_microbatches", [pytest.param(1, marks=pytest.mark.long), 4])
def test_vectors_of_the_model_keep_their_shape(tiny_training: Make, num_microbatches: int) -> None:
    training = tiny_training(model=WithVectors(), num_microbatches=num_microbatches, mesh_shape="rows:2;cols:2")
    batch = next(training.task.training_batches(training.batch_size, training.seed))
    results = Trainer(training).train_step(**batch)
    expected = batch["x"].numpy().mean((0, 1))
    assert_close(results["places"], expected, terms=8 * 6)
    assert_close(results["rows"], [expected, 2 * expected], terms=8 * 6 + 1)
    assert set(results) == {LOSS, "places", "rows", "adam/learning_rate"}


def test_a_table_that_is_not_by_layers_is_refused(tiny_training: Make) -> None:
    class Model:
        def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
            x = features["x"] * mtf.get_variable(features["x"].mesh, "w", [])
            return {LOSS: x, "table": mtf.reduce_sum(x, output_shape=x.shape[1:])}

    with pytest.raises(
        MetricError, match=r'"table" .* \[length:6 d_model:4\], .* "batch" .*; such a metric must be a scalar'
    ):
        Trainer(tiny_training(model=Model()))


def test_a_batch_in_which_nothing_counts_changes_nothing(tiny_training: Make) -> None:
    training = tiny_training(optimizer=mtf.optimize.SgdOptimizer(0.1))
    trainer = Trainer(training)
    batch = dict(next(training.task.training_batches(8, 0)))
    trainer.train_step.initialize()
    before = trainer.variables["out/kernel"]
    assert float(trainer.train_step(**{**batch, "targets_weights": np.zeros([8, 6], np.float32)})[LOSS]) == 0
    np.testing.assert_array_equal(trainer.variables["out/kernel"], before)


def test_bfloat16_activations_leave_variables_in_float32(tiny_training: Make, plain_losses: list[float]) -> None:
    trainer = Trainer(tiny_training(activation_dtype="bfloat16", num_microbatches=2))
    (loss,) = losses(trainer, 1)
    assert trainer.variables.slices("hidden/kernel").dtype == tf.float32
    assert trainer.train_step.graph.variables["hidden/kernel"].outputs[0].dtype == tf.bfloat16
    assert_close(loss, plain_losses[0], terms=6, dtype="bfloat16")


def test_gradients_are_checked_on_demand(tiny_training: Make) -> None:
    """The loss is 0 and finite where its gradient is not."""
    model = with_loss(lambda x, weights: mtf.sqrt(mtf.reduce_sum(x) * 0.0))
    batch = next(tiny_training().task.training_batches(8, 0))
    assert float(Trainer(tiny_training(model=model)).train_step(**batch)[LOSS]) == 0
    checked = Trainer(tiny_training(model=model, check_gradients=True))
    with pytest.raises(NonFiniteError, match="the gradients: a NaN or an infinity"):
        checked.train_step(**batch)
    assert checked.variables["w"] == 1


def test_the_norm_of_the_gradients_is_returned_where_they_are_checked(tiny_training: Make) -> None:
    model = with_loss(lambda x, weights: x)
    training = tiny_training(model=model, check_gradients=True)
    batch = next(training.task.training_batches(8, 0))
    norm = float(Trainer(training).train_step(**batch)[GRADIENT_NORM])
    assert_close(
        norm,
        abs(batch["x"].numpy().mean()),
        terms=8 * 6 * 4,
        magnitude=np.abs(batch["x"].numpy()).mean(),
        dtype="float32",
    )


def test_scalar_summaries_come_with_the_loss(tiny_training: Make) -> None:
    model = with_loss(lambda x, weights: mtf.scalar_summary("mean", mtf.reduce_mean(x)))
    results = Trainer(tiny_training(model=model)).train_step(**next(tiny_training().task.training_batches(8, 0)))
    assert float(results["mean"]) == float(results[LOSS])


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (
            with_loss(lambda x, w: x, name="los"),
            GraphError,
            'no metric "loss", which training minimizes; it has los',
        ),
        (
            with_loss(lambda x, w: (x, w)),
            MetricError,
            r"values \[.*d_model:4\] and weights \[batch:8 length:6\], whose",
        ),
        (
            with_loss(lambda x, w: x, name="time"),
            ConfigurationError,
            'called "time", which is a key of every line of metrics',
        ),
        (
            with_loss(lambda x, w: mtf.scalar_summary("step", mtf.reduce_mean(x))),
            ConfigurationError,
            'a metric is called "step", which is a key of every line of metrics',
        ),
        (with_loss(lambda x, w: 3.0), MetricError, "must be a tensor or a pair .* not 3.0"),
        (with_loss(lambda x, w: w), GraphError, "does not depend on the trainable variables w"),
    ],
)
def test_a_loss_that_cannot_be_lowered(tiny_training: Make, model: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        Trainer(tiny_training(model=model))


def test_a_rule_without_effect_is_an_error(tiny_training: Make) -> None:
    with pytest.raises(LayoutWarning, match='did you mean "hidden"'):
        Trainer(tiny_training(layout="batch:rows;hiden:rows"))


def test_parameters_may_be_kept_in_another_layout(tiny_training: Make, plain_losses: list[float]) -> None:
    trainer = Trainer(tiny_training(parameter_layout="hidden:rows"))
    assert_close(losses(trainer), plain_losses, terms=TERMS, steps=np.arange(4), dtype="float32")
    assert trainer.variables.slices("hidden/kernel").slices[0].shape == [4, 4]


def test_what_a_training_refuses(tiny_training: Make) -> None:
    for changes, message in (
        (
            {"num_microbatches": 3},
            "num_microbatches is 3, which does not divide the batch_size 8; these do: 1, 2, 4, 8",
        ),
        ({"activation_dtype": "bfloat"}, 'must be one of float32, bfloat16, and is .bfloat.; did you mean "bfloat16"'),
        ({"evaluate_every": 0}, "evaluate_every must be an integer, 1 or more, and is 0"),
        ({"checkpoint_every_minutes": -1}, "checkpoint_every_minutes must be a number above 0, or None, and is -1"),
        ({"peak_flops_per_core": "fast"}, "peak_flops_per_core must be a number above 0, or None, and is 'fast'"),
        ({"parameter_layout": 3}, "Training.parameter_layout: not a layout rule: 3; a layout is text such as"),
    ):
        with pytest.raises(ValueError, match=message):
            tiny_training(**changes)


def test_a_vocabulary_that_does_not_fit_the_model_is_refused(tiny_training: Make) -> None:
    def model(vocab_size: int) -> Any:
        tiny = tiny_training().model
        return types.SimpleNamespace(metrics=tiny.metrics, vocabulary=types.SimpleNamespace(vocab_size=vocab_size))

    task, size = tiny_training().task, ByteVocabulary().size
    object.__setattr__(task, "vocabulary", ByteVocabulary())
    with pytest.raises(ConfigurationError, match=f"task has {size} ids, but that of Training.model has 200: ByteVocab"):
        tiny_training(model=model(200), task=task)
    assert tiny_training(model=model(size), task=task).task is task


def test_more_classes_than_the_model_has_are_refused(tiny_training: Make) -> None:
    model, task = types.SimpleNamespace(metrics=tiny_training().model.metrics, num_classes=2), tiny_training().task
    object.__setattr__(task, "num_classes", 3)
    with pytest.raises(ConfigurationError, match=r"task has 3 classes, more than the 2 of SimpleNamespace.num_classes"):
        tiny_training(model=model, task=task)


def test_a_training_is_a_value(tiny_training: Make) -> None:
    training = tiny_training()
    assert dataclasses.replace(training, num_steps=3).num_steps == 3
    assert training.tokens_per_step is None
