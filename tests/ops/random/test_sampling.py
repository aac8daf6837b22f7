"""sample_with_temperature: the right distribution, the same draws under every layout, and few bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import random
from meshtf.errors import DtypeError, ShapeError, UsageError
from meshtf.testing import assert_layout_invariant, interpret

RNG = np.random.default_rng(0)
ROWS, CLASSES = 4000, 6
LOGITS = np.array([0.0, 1.0, -math.inf, -1.0, 0.5, 2.0], np.float32)
LAYOUTS = ["", "row:rows", "c:rows", "c:rows+cols", "row:cols;c:rows"]


def drawn(logits: np.ndarray, layout: str = "", temperature: Any = 1.0, seed: int = 0) -> np.ndarray:
    shape = f"row:{len(logits)} c:{logits.shape[1]}"
    mesh = "rows:2;cols:2" if logits.shape[1] % 4 == 0 else "rows:2;cols:1"
    program = lambda x: mtf.sample_with_temperature(x, "c", temperature)  # noqa: E731
    return interpret(program, {"x": (shape, logits)}, mesh, layout, seed=seed).results


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_frequencies_are_those_of_the_softmax(temperature: float) -> None:
    index = drawn(np.tile(LOGITS, (ROWS, 1)), temperature=temperature)
    assert index.dtype == np.int32
    expected = np.exp(LOGITS / temperature)
    expected /= expected.sum()
    counts = np.bincount(index, minlength=CLASSES)
    assert counts[2] == 0
    errors = np.abs(counts / ROWS - expected) / np.sqrt(np.maximum(expected * (1 - expected), 1e-12) / ROWS)
    assert errors.max() < 4.5, (counts / ROWS, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_every_layout_draws_the_same(dtype: Any) -> None:
    logits = RNG.normal(size=(52, 12)).astype(dtype)
    first = drawn(logits)
    assert len(np.unique(first)) > 5
    for layout in LAYOUTS[1:]:
        np.testing.assert_array_equal(drawn(logits, layout), first)
    assert (drawn(logits, seed=1) != first).any()


def test_noise_follows_an_overridden_layout() -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.sample_with_temperature(mtf.with_layout(x, "row:rows;c:cols"), "c")

    inputs = {"x": ("row:52 c:12", RNG.normal(size=(52, 12)).astype(np.float32))}
    expected = interpret(program, inputs, "rows:1;cols:1").results
    done = interpret(program, inputs, "rows:2;cols:2", "c:rows")
    np.testing.assert_array_equal(done.results, expected)
    # The best value, and its index, of each row of the core's; then the rows, which the result has whole. No noise.
    sizes = [(c.step.kind, c.input.slice_shape) for c in done.plan.collectives]
    assert all(math.prod(size) <= 26 for kind, size in sizes), sizes


def test_only_the_best_of_each_core_is_sent() -> None:
    program = lambda x: mtf.sample_with_temperature(x, "c")  # noqa: E731
    done = interpret(program, {"x": ("row:4 c:64", np.zeros((4, 64), np.float32))}, "rows:2;cols:4", "c:rows+cols")
    kinds = [(c.step.kind, c.step.reduction, c.input.slice_shape) for c in done.plan.collectives]
    assert kinds == [("all_reduce", "max", (4,)), ("all_reduce", "min", (4,))]


def test_temperature_zero_is_argmax() -> None:
    logits = RNG.normal(size=(8, 12))
    for layout in LAYOUTS:
        np.testing.assert_array_equal(drawn(logits, layout, temperature=0.0), logits.argmax(1))
    np.testing.assert_array_equal(drawn(logits, temperature=np.float32(0.5)), drawn(logits, temperature=0.5))


def test_on_virtual_cpus() -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.sample_with_temperature(x, "c", 0.7)

    inputs = {"x": ("row:8 c:16", RNG.normal(size=(8, 16)).astype(np.float32))}
    assert_layout_invariant(program, inputs, ["row:rows;c:cols"], with_gradients=False)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64])
def test_the_noise_has_gumbels_distribution(dtype: tf.DType) -> None:
    size = 200_000
    noise = np.sort(random.gumbel((1, 2), [0], [size], [size], dtype).numpy().astype(np.float64))
    probabilities = np.exp(-np.exp(-noise))
    gap = math.sqrt(size) * np.abs(probabilities - (np.arange(size) + 0.5) / size).max()
    assert gap < 1.95  # Kolmogorov and Smirnov's: passed once in a thousand
    assert np.isfinite(noise).all()
    assert noise[-1] > 10.0


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x = mtf.placeholder(mesh, "batch:4 vocab:8")
    with pytest.raises(ShapeError, match=r'no dimension "vocabb" .*; did you mean "vocab"'):
        mtf.sample_with_temperature(x, "vocabb")
    with pytest.raises(DtypeError, match=r"logits must be floating, not int32; convert with mtf.cast"):
        mtf.sample_with_temperature(mtf.to_int32(x), "vocab")
    for wrong in (-1.0, math.nan, math.inf, x):
        with pytest.raises(UsageError, match=r"the temperature must be a number of at least 0, known now"):
            mtf.sample_with_temperature(x, "vocab", wrong)
    with pytest.raises(ShapeError, match=r'dimension "none" has size 0'):
        mtf.sample_with_temperature(mtf.placeholder(mesh, "batch:4 none:0"), "none")
