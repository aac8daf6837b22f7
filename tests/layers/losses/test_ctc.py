"""The CTC loss against TensorFlow's, with gradients, under layouts; and against a sum over all alignments."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import interpret

BATCH, LENGTH, VOCAB = mtf.Dimension("batch", 4), mtf.Dimension("length", 6), mtf.Dimension("vocab", 4)
LABELS = np.array([[1, 2, 1], [2, 2, 3], [3, 0, 0], [1, 1, 0]], np.int32)
LOGIT_LENGTHS, LABEL_LENGTHS = np.array([6, 6, 3, 4], np.int32), np.array([3, 3, 1, 2], np.int32)


def test_as_in_tensorflow(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    def layers(x: mtf.Tensor, labels: mtf.Tensor, places: mtf.Tensor, counts: mtf.Tensor) -> list[mtf.Tensor]:
        lengths = {"logit_lengths": places, "label_lengths": counts}
        return [mtf.layers.ctc_loss(x, labels, "length", "labels", "vocab", **lengths)]

    def formulas(
        variables: Any, x: tf.Tensor, labels: tf.Tensor, places: tf.Tensor, counts: tf.Tensor
    ) -> list[tf.Tensor]:
        return [tf.nn.ctc_loss(labels, x, counts, places, logits_time_major=False, blank_index=0)]

    inputs = {
        "x": normal([BATCH, LENGTH, VOCAB]),
        "labels": ([BATCH, mtf.Dimension("labels", 3)], LABELS),
        "places": ([BATCH], LOGIT_LENGTHS),
        "counts": ([BATCH], LABEL_LENGTHS),
    }
    check_layers(layers, formulas, inputs, ["batch:rows;vocab:cols", "length:rows;labels:cols"])


def test_the_sum_over_all_alignments() -> None:
    """Of 4 places and 3 classes, with the last one as the blank."""
    x, label = np.random.default_rng(0).standard_normal((4, 3)), (1, 1)
    log_p = x - np.log(np.sum(np.exp(x), 1, keepdims=True))
    ways = [way for way in itertools.product(range(3), repeat=4) if _labels_of(way, 2) == label]
    expected = -np.log(sum(np.exp(sum(log_p[t, c] for t, c in enumerate(way))) for way in ways))

    def program(x: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
        return mtf.layers.ctc_loss(x, labels, "t", "n", "c", blank_id=2)

    inputs = {"x": ("t:4 c:3", x), "labels": ("n:2", np.array(label, np.int32))}
    np.testing.assert_allclose(interpret(program, inputs, "one:1").results, expected, rtol=1e-13)


def _labels_of(way: tuple[int, ...], blank: int) -> tuple[int, ...]:
    return tuple(c for c, _ in itertools.groupby(way) if c != blank)


def test_labels_that_cannot_be_cost_infinitely_much() -> None:
    """Two equal labels need three places; a class that is not there has no probability. Gradients stay finite."""
    labels = np.array([[1, 1], [2, 9], [2, -1]], np.int32)

    def program(x: mtf.Tensor, labels: mtf.Tensor) -> list[Any]:
        loss = mtf.layers.ctc_loss(x, labels, "length", "labels", "vocab")
        return [loss, mtf.gradients([loss], [x])[0]]

    inputs = {"x": ("batch:3 length:2 vocab:4", np.zeros((3, 2, 4))), "labels": ("batch:3 labels:2", labels)}
    loss, gradient = interpret(program, inputs, "one:1").results
    np.testing.assert_array_equal(loss, [np.inf] * 3)
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("layout", ["", "batch:all"])
def test_a_number_of_labels_that_are_not_there_costs_infinitely_much(layout: str) -> None:
    """Not 0, which would be the loss of labels that are certain."""

    def program(logits: mtf.Tensor, labels: mtf.Tensor, counts: mtf.Tensor) -> mtf.Tensor:
        return mtf.layers.ctc_loss(logits, labels, "length", "labels", "vocab", label_lengths=counts)

    given = {
        "logits": ("batch:4 length:5 vocab:3", np.zeros([4, 5, 3], np.float32)),
        "labels": ("batch:4 labels:2", np.ones([4, 2], np.int32)),
        "counts": ("batch:4", np.array([2, 3, -1, 0], np.int32)),
    }
    losses = interpret(program, given, "all:2", layout).results
    assert np.isfinite(losses).tolist() == [True, False, False, True]
    assert (losses > 0.0).all()


def test_what_is_refused(build: Callable[..., mtf.Graph]) -> None:
    def loss(labels: str, dtype: tf.DType = tf.int32, **options: Any) -> Callable[[mtf.Tensor], mtf.Tensor]:
        return lambda x: mtf.layers.ctc_loss(
            x, mtf.zeros(x.mesh, labels, dtype), "length", "labels", "vocab", **options
        )

    shape = [BATCH, LENGTH, VOCAB]
    with pytest.raises(ShapeError, match=r"the labels need the dimensions \[batch:4 labels:3\], not \[labels:3\]"):
        build(loss("labels:3"), shape)
    with pytest.raises(DtypeError, match=r"the labels must be int32 or int64, not float32"):
        build(loss("batch:4 labels:3", tf.float32), shape)
    with pytest.raises(ShapeError, match=r"blank_id 4 is not a class of \[vocab:4\]"):
        build(loss("batch:4 labels:3", blank_id=4), shape)
