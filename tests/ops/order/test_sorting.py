"""sort and argsort, of what is held in its own layout (`identity`: an input is whole on every core)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError, UsageError
from meshtf.testing import assert_layout_invariant, interpret
from tests.house.sharpest import sharpest

X = np.random.default_rng(0).standard_normal((4, 12, 4))
TIES = np.random.default_rng(1).integers(-1, 2, (4, 12, 4))
LAYOUTS = ["", "b:rows", "b:cols+rows", "b:rows+cols", "a:rows;b:cols", "a:rows;c:cols"]


@pytest.mark.parametrize("direction", ["ASCENDING", "DESCENDING"])
def test_sort_and_its_gradients(agrees: Any, direction: str) -> None:
    agrees(
        lambda x: [
            mtf.sort(mtf.identity(x), "b", direction),
            mtf.argsort(mtf.identity(x), mtf.Dimension("b", 12), direction),
        ],
        lambda x: [tf.sort(x, 1, direction), tf.argsort(x, 1, direction)],
        {"x": ("a:4 b:12 c:4", X)},
        LAYOUTS,
    )


def test_on_many_meshes(agrees_on_many_meshes: Any) -> None:
    x = np.random.default_rng(2).standard_normal((12, 12, 12))
    agrees_on_many_meshes(
        lambda x: mtf.sort(mtf.identity(x), "a"), lambda x: tf.sort(x, 0), {"x": ("a:12 b:12 c:12", x)}, order=1
    )


DTYPES = [np.int8, np.int64, np.float16, np.float32, np.float64]
DIRECTIONS = ["ASCENDING", "DESCENDING"]


@pytest.mark.parametrize(
    ("dtype", "direction"),
    sharpest(itertools.product(DTYPES, DIRECTIONS), [(dtype, DIRECTIONS[n % 2]) for n, dtype in enumerate(DTYPES)]),
)
def test_equal_elements_keep_their_order(agrees: Any, dtype: Any, direction: str) -> None:
    agrees(
        lambda x: [mtf.argsort(mtf.identity(x), "b", direction), mtf.sort(mtf.identity(x), "b", direction)],
        lambda x: [tf.argsort(x, 1, direction, stable=True), tf.sort(x, 1, direction)],
        {"x": ("a:4 b:12 c:4", TIES.astype(dtype))},
        ["", "b:rows", "b:cols+rows"],
        order=0,
    )


def test_ends_of_a_range_and_nan() -> None:
    numbers = np.array([255, 0, 3, 0], np.uint8)
    floats = np.array([1.0, np.nan, -np.inf, 0.0])
    for layout in ("", "b:rows"):
        done = interpret(lambda x, y: [mtf.sort(mtf.identity(x), "b"), mtf.sort(y, "b", "DESCENDING")],
                         {"x": ("b:4", numbers), "y": ("b:4", floats)}, "rows:2", layout)  # fmt: skip
        np.testing.assert_array_equal(done.results[0], [0, 0, 3, 255])
        np.testing.assert_array_equal(done.results[1], [1.0, 0.0, np.nan, -np.inf])


def test_another_dimension_takes_over_the_split() -> None:
    def kinds(layout: str) -> list[str]:
        done = interpret(
            lambda x: mtf.argsort(mtf.identity(x), "b"), {"x": ("a:4 b:12", X[..., 0])}, "rows:2;cols:2", layout
        )
        return [c.step.kind for c in done.plan.collectives]

    assert kinds("b:rows") == ["all_to_all"] * 2  # there, and back to the layout of the result
    assert kinds("a:rows;b:cols") == ["all_to_all"] * 2
    assert kinds("a:rows") == []


def test_on_virtual_cpus() -> None:
    inputs = {"x": ("a:4 b:12", X[..., 0].astype(np.float32))}
    assert_layout_invariant(
        lambda x: [mtf.sort(mtf.identity(x), "b"), mtf.argsort(mtf.identity(x), "a")],
        inputs,
        ["a:rows;b:cols"],
    )


def test_errors_say_what_is_wrong() -> None:
    x = mtf.placeholder(mtf.Mesh(mtf.Graph()), "batch:4 classes:8")
    with pytest.raises(ShapeError, match=r'no dimension "clases" .*; did you mean "classes"'):
        mtf.sort(x, "clases")
    with pytest.raises(UsageError, match=r"'ASCENDING' or 'DESCENDING', not 'UP'"):
        mtf.sort(x, "classes", "UP")
    with pytest.raises(DtypeError, match=r"complex64 has no order"):
        mtf.argsort(mtf.cast(x, tf.complex64), "classes")
