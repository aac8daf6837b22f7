"""Classes as integers of every dtype: the loss, and which predictions are right."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers.class_ids import are_right, class_ids, likeliest_classes
from meshtf.testing import interpret

VOCAB = 300
DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("check_targets", [True, False])
def test_the_loss_takes_classes_of_any_integer_dtype(dtype: str, check_targets: bool) -> None:
    """More classes than a narrow dtype has numbers, on cores that split them."""
    logits = np.random.default_rng(0).normal(size=(4, VOCAB)).astype(np.float32)
    targets = np.array([1, 2, 127, 90 if dtype == "int8" else 255]).astype(dtype)

    def program(x: mtf.Tensor, t: mtf.Tensor) -> list[mtf.Tensor]:
        loss = mtf.layers.softmax_cross_entropy_with_logits(x, t, "vocab", check_targets=check_targets)
        return [loss, are_right(x.argmax("vocab"), t)]

    inputs = {"x": (f"batch:4 vocab:{VOCAB}", logits), "t": ("batch:4", targets)}
    loss, is_right = interpret(program, inputs, "a:2", "vocab:a").results
    ids = targets.astype(np.int64)
    expected = np.log(np.exp(logits.astype(np.float64)).sum(1)) - logits[np.arange(4), ids]
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    np.testing.assert_array_equal(is_right, logits.argmax(1) == ids)


def test_a_narrow_class_does_not_wrap_around() -> None:
    def program(found: mtf.Tensor, right: mtf.Tensor) -> mtf.Tensor:
        return are_right(found, right)

    found, right = np.array([256, 255, 3], np.int32), np.array([0, 255, 4], np.uint8)
    inputs = {"found": ("n:3", found), "right": ("n:3", right)}
    np.testing.assert_array_equal(interpret(program, inputs, "a:1").results, [0.0, 1.0, 0.0])


@pytest.mark.parametrize("dtype", ["uint32", "uint64"])
def test_an_unsigned_class_beyond_int32_is_no_class(dtype: str) -> None:
    def program(x: mtf.Tensor, t: mtf.Tensor) -> mtf.Tensor:
        return mtf.layers.softmax_cross_entropy_with_logits(x, t, "vocab", check_targets=False)

    targets = np.array([np.iinfo(dtype).max, 2**31], dtype)
    inputs = {"x": ("batch:2 vocab:4", np.zeros((2, 4), np.float32)), "t": ("batch:2", targets)}
    np.testing.assert_array_equal(interpret(program, inputs, "a:1").results, [0.0, 0.0])


def test_the_class_of_a_distribution_is_its_likeliest() -> None:
    def program(shares: mtf.Tensor, ids: mtf.Tensor) -> list[mtf.Tensor]:
        classes = shares.shape[-1]
        return [likeliest_classes(shares, classes), likeliest_classes(ids, classes)]

    shares, ids = np.array([[0.2, 0.5, 0.3], [0.6, 0.4, 0.0]], np.float32), np.array([1, 0], np.uint8)
    inputs = {"shares": ("n:2 classes:3", shares), "ids": ("n:2", ids)}
    for found in interpret(program, inputs, "a:1").results:
        np.testing.assert_array_equal(found, [1, 0])


def test_a_distribution_stays_as_it_is() -> None:
    with mtf.Graph() as graph:
        x = mtf.zeros(mtf.Mesh(graph), "batch:2 vocab:4")
        assert class_ids(x) is x
