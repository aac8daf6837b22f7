"""Means over held-out examples are exact: each counts once, padding never."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import FeedError, IndexRangeError, NonFiniteError
from meshtf.testing import assert_close
from meshtf.train import Evaluation, Trainer, Training
from meshtf.train._metric_sums import MetricError
from meshtf.train.configuration import ConfigurationError
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


@pytest.mark.parametrize("batch_size", [4, pytest.param(8, marks=pytest.mark.long), 12])
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

        def held_out_metrics(self, vectors: dict[str, np.ndarray]) -> dict[str, float]:
            return {"most": float(vectors["largest"].max())}

    training = tiny_training(model=Vectors(), batch_size=4)
    x = training.task.held_out["x"].astype(np.float64)  # type: ignore[attr-defined]
    largest = [x[start : start + 4].max(0) for start in (0, 4, 8)]
    evaluation = evaluated(training)
    assert set(evaluation.means) == {"loss", "most"}
    assert evaluation.means["most"] == evaluation.vectors["largest"].max()
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


def test_bytes_of_a_token_that_nothing_predicts_do_not_count(tiny_training: Make) -> None:
    """In rows of two packed texts, and in rows of one."""

    class Begun(SumModel):
        start_id, starts_prompts = 0, False

    class Text(ArrayTask):
        def num_bytes(self, features: Mapping[str, Any]) -> int:
            return int(np.count_nonzero(features["targets_weights"]))

    task = tiny_training().task
    assert isinstance(task, ArrayTask)
    weights = task.held_out["targets_weights"]
    length = weights.shape[-1]
    whole = np.arange(length, dtype=np.int32)
    for positions, name in ((whole, "unknown"), (whole % (length // 2), "targets_position")):
        train, held_out = (
            {**arrays, name: np.broadcast_to(positions, arrays["targets_weights"].shape)}
            for arrays in (task.train, task.held_out)
        )
        own = Text(task.name, {**task.shapes, name: task.shapes["targets_weights"]}, train, held_out)
        evaluation = evaluated(tiny_training(model=Begun(), task=own, batch_size=8))
        num_bytes = np.count_nonzero(weights[:, positions > 0])
        expected = evaluation.means["loss"] * weights.sum() / math.log(2) / num_bytes
        assert_close(evaluation.means["bits_per_byte"], expected, terms=weights.size, dtype="float32")


class Weighted:
    """One weight, and the metrics that a function makes of the inputs [batch, length, d_model] and targets' weights."""

    def __init__(self, metrics: Callable[[mtf.Tensor, mtf.Tensor], dict[str, Any]]) -> None:
        self._metrics = metrics

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
        w = mtf.get_variable(features["x"].mesh, "w", [], initializer=mtf.ones)
        return self._metrics(features["x"] * w, features["targets_weights"])


@pytest.mark.parametrize(
    "layout", [pytest.param("batch:rows", marks=pytest.mark.long), "batch:rows;length:cols", "d_model:rows"]
)
def test_padding_never_counts_where_a_metric_tells_of_the_whole_batch(tiny_training: Make, layout: str) -> None:
    """Eleven examples in batches of four: for the last three there is a program of their own, which two rows need not
    divide. The loss is a scalar, as README has it; the other metric knows no example either."""
    model = Weighted(lambda x, w: {"loss": mtf.reduce_mean(mtf.exp(x)), "greatest": mtf.reduce_max(x)})
    training = tiny_training(model=model, batch_size=4, mesh_shape="rows:2;cols:2", layout=layout)
    x = training.task.held_out["x"].astype(np.float64)  # type: ignore[attr-defined]
    evaluation = evaluated(training)
    assert_close(evaluation.means["loss"], np.exp(x).mean(), terms=x.size, dtype="float32")
    greatest = [x[start : start + 4].max() for start in (0, 4, 8)]
    assert_close(evaluation.means["greatest"], np.average(greatest, weights=[4, 4, 3]), terms=4, dtype="float32")


@pytest.mark.parametrize(("layout", "of_whole_batch"), [("batch:rows", False), ("batch:rows", True), ("", False)])
def test_the_area_under_the_curve_is_that_of_all_batches(
    tiny_training: Make, layout: str, of_whole_batch: bool
) -> None:
    """Eleven examples in batches of four, with equal scores in other batches; padding, if any, never counts."""

    def metrics(x: mtf.Tensor, w: mtf.Tensor) -> dict[str, Any]:
        scores, labels = (mtf.gather(x, n, "length", output_shape=x.shape[:1] + x.shape[2:]) for n in (0, 1))
        scores, labels = (mtf.reduce_sum(y, output_shape=x.shape[:1]) for y in (scores, labels))
        found = {"loss": x, "auc": {"scores": scores, "labels": labels}}
        return {**found, "greatest": mtf.reduce_max(x)} if of_whole_batch else found

    x = np.zeros((11, 6, 4), np.float32)
    x[:, 0, 0] = scores = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], np.float32) - 4
    x[:, 1, 0] = labels = np.array([1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0], np.float32)
    training = tiny_training(
        model=Weighted(metrics), batch_size=4, layout=layout, task=first_held_out(tiny_training(), 11, x=x)
    )
    pairs = scores[labels == 1][:, None] - scores[labels == 0]
    assert evaluated(training).means["auc"] == pytest.approx(np.mean((pairs > 0) + (pairs == 0) / 2), abs=1e-12)


def test_labels_that_are_alike_have_no_area(tiny_training: Make) -> None:
    def metrics(x: mtf.Tensor, w: mtf.Tensor) -> dict[str, Any]:
        scores = mtf.reduce_sum(x, output_shape=x.shape[:1])
        return {"loss": x, "auc": {"scores": scores, "labels": mtf.zeros_like(scores)}}

    evaluation = evaluated(tiny_training(model=Weighted(metrics)))
    assert evaluation.uncounted == ("auc",)
    wrong = Weighted(lambda x, w: {"loss": x, "auc": {"scores": x, "labels": x}})
    with pytest.raises(
        MetricError, match=r'"auc" of the model is a mapping, .* both tensors \[batch\], and has "scores"'
    ):
        evaluated(tiny_training(model=wrong))


def test_a_model_that_cannot_be_built_for_the_last_examples_is_refused_before_anything_runs(
    tiny_training: Make,
) -> None:
    def in_pairs(x: mtf.Tensor, _: mtf.Tensor) -> dict[str, Any]:
        pairs = mtf.reshape(x, [mtf.Dimension("pairs", x.shape[0].size // 2), mtf.Dimension("two", 2), *x.shape[1:]])
        return {"loss": mtf.reduce_mean(mtf.square(pairs))}

    trainer = Trainer(tiny_training(model=Weighted(in_pairs), batch_size=4))
    with pytest.raises(ConfigurationError) as caught:
        trainer.check()
    message = str(caught.value)
    assert "the last batch of held-out examples has only 3" in message
    assert 'the model\'s metric "loss" wrong' in message
    assert "choose Training.batch_size so that it divides the number of" in message
    Trainer(tiny_training(model=Weighted(in_pairs), batch_size=2, task=first_held_out(tiny_training(), 10))).check()


def first_held_out(training: Training, count: int, **changes: np.ndarray) -> ArrayTask:
    """The task with fewer held-out examples, and some of their features replaced."""
    task = training.task
    assert isinstance(task, ArrayTask)
    held_out = {name: array[:count] for name, array in {**task.held_out, **changes}.items()}
    return dataclasses.replace(task, held_out=held_out)


@pytest.mark.parametrize(
    ("metrics", "error", "message"),
    [
        (
            lambda x, w: {"loss": (w, w * 0.0), "all": w},
            MetricError,
            "the loss has no mean on 11 held-out examp",
        ),
        (
            lambda x, w: {"loss": mtf.reduce_mean(x) * np.nan},
            NonFiniteError,
            "so among the examples 0 to 7 of the task",
        ),
        (
            lambda x, w: {"loss": mtf.log(mtf.zeros_like(x))},
            NonFiniteError,
            "All features of these examples are finite, so the model computed it",
        ),
    ],
)
def test_a_loss_that_tells_nothing(
    tiny_training: Make, metrics: Callable[..., dict[str, Any]], error: type, message: str
) -> None:
    evaluation = evaluated(tiny_training(model=Weighted(metrics)))
    with pytest.raises(error, match=message):
        evaluation.check()
    assert str(evaluation).startswith(("loss nan", "loss -inf", "all ", "loss without a mean"))


def test_a_held_out_nan_is_named_by_feature_and_example(tiny_training: Make) -> None:
    x = tiny_training().task.held_out["x"].copy()  # type: ignore[attr-defined]
    x[9, 2, 1] = np.nan
    training = tiny_training(task=first_held_out(tiny_training(), 11, x=x))
    evaluation = evaluated(training)
    with pytest.raises(NonFiniteError) as caught:
        evaluation.check()
    assert 'it becomes so among the examples 8 to 10 of the task "tiny", counted from 0' in str(caught.value)
    assert 'The feature "x" holds a NaN or an infinity in example 9.' in str(caught.value)
    assert str(evaluation).startswith("loss nan, ")


def test_a_metric_of_which_nothing_counts_says_so(tiny_training: Make) -> None:
    """Of a vector, the parts that count have their means."""

    def metrics(x: mtf.Tensor, w: mtf.Tensor) -> dict[str, Any]:
        places = mtf.range(x.mesh, mtf.Dimension("places", 3), tf.float32)
        return {"loss": x, "nothing": (w, w * 0.0), "places": (places, places)}

    evaluation = evaluated(tiny_training(model=Weighted(metrics)))
    assert set(evaluation.means) == {"loss"}
    assert "nothing without a mean, since all its weights are 0 (on 11 held-out examples)" in str(evaluation)
    np.testing.assert_array_equal(evaluation.vectors["places"], [np.nan, 1, 2])
    evaluation.check()


@pytest.mark.parametrize("name", ["loss", "of_nothing"])
def test_a_mean_of_nothing_is_refused(tiny_training: Make, name: str) -> None:
    def metrics(x: mtf.Tensor, w: mtf.Tensor) -> dict[str, Any]:
        return {"loss": x, name: mtf.slice(x, 0, 0, "length")}

    with pytest.raises(
        MetricError, match=rf'"{name}" .* \[batch:8 length:0 d_model:4\], so it has no mean: a dimension'
    ):
        Trainer(tiny_training(model=Weighted(metrics)))


def test_a_task_that_holds_nothing_out_is_refused(tiny_training: Make) -> None:
    class Nothing(ArrayTask):
        def evaluation_batches(self, batch_size: int) -> Any:
            return iter(())

    task = tiny_training().task
    assert isinstance(task, ArrayTask)
    training = tiny_training(task=Nothing(task.name, task.shapes, task.train, task.held_out))
    with pytest.raises(ConfigurationError, match='the task "tiny" holds out no example'):
        Trainer(training).check()
    with pytest.raises(ConfigurationError, match='the task "tiny" holds out no example'):
        evaluated(training).check()


def test_held_out_examples_that_the_program_cannot_take_are_found_before_training(tiny_training: Make) -> None:
    class Wider(ArrayTask):
        def evaluation_batches(self, batch_size: int) -> Any:
            for batch in super().evaluation_batches(batch_size):
                yield {**batch, "x": np.asarray(batch["x"], np.float64)}

    task = tiny_training().task
    assert isinstance(task, ArrayTask)
    trainer = Trainer(tiny_training(task=Wider(task.name, task.shapes, task.train, task.held_out)))
    with pytest.raises(FeedError) as caught:
        trainer.check()
    assert 'the held-out examples of the task "tiny" are not what its `inputs` say they are' in str(caught.value)
    assert 'input "x" must be [batch:8 length:6 d_model:4] float32, and has dtype float64' in str(caught.value)
    assert not trainer.variables


def test_a_label_out_of_range_is_told_with_its_batch_and_place(tiny_training: Make) -> None:
    """In the second held-out batch; what is padded there counts for nothing."""

    class Classes:
        def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
            classes = mtf.Dimension("classes", 3)
            logits = mtf.layers.dense(features["x"], [classes])
            return {"loss": mtf.layers.softmax_cross_entropy_with_logits(logits, features["labels"], classes)}

    d_model = mtf.Dimension("d_model", 4)
    features = {"x": np.ones([11, 4], np.float32), "labels": np.arange(11, dtype=np.int32) % 3}
    held_out = {**features, "labels": np.where(np.arange(11) == 9, 3, features["labels"]).astype(np.int32)}
    task = ArrayTask("tiny", {"x": mtf.Shape([d_model]), "labels": mtf.Shape([])}, features, held_out)
    with pytest.raises(IndexRangeError) as caught:
        evaluated(tiny_training(model=Classes(), task=task))
    place = 'a target outside of 0 to 2 in input "labels" [batch:8] int32: 3 at batch 1'
    assert str(caught.value).startswith(f"batch 2 of the held-out examples: {place}\n")
    assert f"at {__file__}" in str(caught.value)


def test_an_evaluation_may_be_stopped(tiny_training: Make) -> None:
    trainer = Trainer(tiny_training())
    answers = iter([False, True])
    assert trainer.evaluate(lambda: next(answers)) is None


class Noisy:
    """Adds random numbers, in evaluations too."""

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
        noise = mtf.random_normal(features["x"].mesh, features["x"].shape)
        return {"loss": mtf.reduce_sum(features["x"] * noise, output_shape=features["x"].shape.dims[:1])}


@pytest.mark.parametrize("num_before", [0, 1])
def test_an_evaluation_after_one_that_was_stopped_draws_the_same_bits(tiny_training: Make, num_before: int) -> None:
    """A resumed run evaluates again what the stopped run did not finish."""

    def means(*, is_stopped: bool) -> list[float]:
        evaluator = Evaluator(training := tiny_training(model=Noisy()), mesh_of(training))
        evaluations = [evaluator.evaluate() for _ in range(num_before)]
        if is_stopped:
            answers = iter([False, True])
            assert evaluator.evaluate(lambda: next(answers)) is None
        evaluations += [evaluator.evaluate(), evaluator.evaluate()]
        return [evaluation.means["loss"] for evaluation in evaluations if evaluation is not None]

    expected = means(is_stopped=False)
    assert means(is_stopped=True) == expected
    assert len(set(expected)) == num_before + 2  # each evaluation draws others


class Classes:
    """Twelve classes, chosen by a weight of the program."""

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Any]:
        x = mtf.reduce_sum(features["x"], reduced_dim="length")
        model = mtf.models.MLPClassifier(num_classes=12, hidden_sizes=())
        return model.metrics({"images": x, "labels": features["labels"]}, is_training=is_training)


def test_counts_are_exact_on_any_mesh_with_a_padded_last_batch(tiny_training: Make) -> None:
    """Eleven examples in batches of eight: how many are right is a whole number, and the same on every mesh."""
    task = tiny_training().task
    assert isinstance(task, ArrayTask)
    parts = [
        {"x": part["x"], "labels": (np.arange(len(part["x"])) % 12).astype(np.int32)}
        for part in (task.train, task.held_out)
    ]
    shapes = {"x": task.shapes["x"], "labels": mtf.Shape([])}
    labelled = ArrayTask("classes", shapes, *parts)
    meshes = {"rows:1": "", "rows:8": "batch:rows", "rows:2;cols:4": "batch:rows;classes:cols"}
    found = [
        evaluated(tiny_training(model=Classes(), task=labelled, mesh_shape=mesh, layout=layout))
        for mesh, layout in meshes.items()
    ]
    for name in ("accuracy", "top_5_accuracy"):
        assert len({each.sums[name] for each in found}) == 1
        right, count = found[0].sums[name]
        assert count == 11
        assert right == int(right)
        assert found[0].means[name] == right / 11
    assert 0 < found[0].sums["top_5_accuracy"][0] < 11
    for each in found:
        assert each.seconds > 0
        assert_close(each.means["loss"], found[0].means["loss"], terms=(24, 4 * 12, 11), dtype="float32")
