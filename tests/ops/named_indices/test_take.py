"""Brackets: `x["n", 1:-1:2]` makes the operations that it stands for, and has NumPy's values under every layout."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import legal_layouts, shapes_of
from tests.built_program import BuiltProgram
from tests.ops.named_indices.drawing import MESHES, Brackets, brackets_of, coordinates
from tests.tensor_face.same_graph import assert_same_graph

INPUTS = {
    "x": mtf.TensorSpec("n:6 m:4 k:3"),
    "ids": mtf.TensorSpec("i:5", tf.int32),
    "own": mtf.TensorSpec("k:3", tf.int32),
    "one": mtf.TensorSpec("", tf.int32),
}

# fmt: off
OLD_AND_NEW: dict[str, tuple[Any, Any]] = {
    "number": (lambda t: mtf.gather(t.x, 2, "m"), lambda t: t.x["m", 2]),
    "number from the end": (lambda t: mtf.gather(t.x, 3, "m"), lambda t: t.x["m", np.int64(-1)]),
    "slice": (lambda t: mtf.slice(t.x, 1, 4, "n"), lambda t: t.x["n", 1:-1]),
    "whole": (lambda t: t.x, lambda t: t.x["n", :]),
    "reversed": (lambda t: mtf.reverse(t.x, "n"), lambda t: t.x["n", ::-1]),
    "step": (lambda t: mtf.stride_tensor_1d(t.x, "n", 2), lambda t: t.x["n", ::2]),
    "step from 1": (
        lambda t: mtf.stride_tensor_1d(mtf.slice(t.x, 1, 4, "n"), "n", 2), lambda t: t.x["n", 1:-1:2]),
    "step that does not divide": (
        lambda t: mtf.stride_tensor_1d(mtf.pad(t.x, [0, 2], "n", pad_value=None), "n", 4), lambda t: t.x["n", ::4]),
    "computed number": (lambda t: mtf.gather(t.x, t.one, "n"), lambda t: t.x["n", t.one]),
    "index tensor": (
        lambda t: mtf.gather(t.x, t.ids, "m", output_shape="n:6 i:5 k:3"), lambda t: t.x[{"m": t.ids}]),
    "index tensor over a dimension of x": (
        lambda t: mtf.gather(t.x, t.own, "n", output_shape="m:4 k:3"), lambda t: t.x["n", t.own]),
    "several": (
        lambda t: mtf.slice(mtf.gather(t.x, 0, "n"), 1, 2, "m"), lambda t: t.x["n", 0, "m", 1:3]),
    "several in a dict": (
        lambda t: mtf.slice(mtf.gather(t.x, 0, "n"), 1, 2, "m"),
        lambda t: t.x[{mtf.Dimension("n", 6): 0, "m": slice(1, 3)}]),
}
# fmt: on


@pytest.mark.parametrize("case", OLD_AND_NEW)
def test_brackets_make_the_operations_that_they_stand_for(case: str) -> None:
    assert_same_graph(*OLD_AND_NEW[case], INPUTS)


def check_brackets(seed: int, layouts: int) -> None:
    """One random use of brackets: values and gradients on the interpreter, under some layouts, against NumPy's."""
    rng = random.Random(seed)
    drawn = brackets_of(rng)
    places, is_inside, shape = coordinates(drawn)
    x, weights = drawn.numbers(rng, drawn.shape), drawn.numbers(rng, shape)
    expected = np.where(is_inside, x.reshape(-1)[places], 0)
    slope = np.zeros(x.size)
    np.add.at(slope, places, weights * is_inside)

    def program(**tensors: mtf.Tensor) -> list[Any]:
        y = tensors["x"][drawn.key(tensors)]
        assert y.shape == shape
        loss = (y * mtf.constant(y.mesh, weights, shape, tf.float64)).sum()
        return [y, *mtf.gradients(loss, [tensors["x"]])]

    check_program(program, drawn, x, [expected, slope.reshape(x.shape)], rng, layouts)


def check_program(
    program: Any, drawn: Brackets, x: np.ndarray, expected: list[np.ndarray], rng: random.Random, layouts: int
) -> None:
    """All numbers are small integers, so that every layout gives them exactly."""
    built = BuiltProgram(program, {"x": (drawn.shape, x), **drawn.index_inputs})
    for _ in range(layouts):
        mesh = rng.choice(MESHES)
        layout = rng.choice(list(legal_layouts(shapes_of(built.graph), mesh, limit=20)))
        done = built.interpret(mesh, layout)
        for found, wanted in zip(done.results, expected, strict=True):
            np.testing.assert_array_equal(found, wanted, err_msg=f'{drawn} mesh [{mesh}] layout "{layout}"')


@pytest.mark.parametrize("seed", range(16))
def test_random_brackets_are_those_of_numpy(seed: int) -> None:
    check_brackets(seed, layouts=2)


@pytest.mark.long
def test_many_random_brackets_are_those_of_numpy() -> None:
    for seed in range(100, 400):
        check_brackets(seed, layouts=4)
