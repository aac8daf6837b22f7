"""top_1 and argmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import interpret

X = np.random.default_rng(0).standard_normal((4, 12, 4))
TIES = np.random.default_rng(1).integers(0, 3, (4, 12, 4))
LAYOUTS = ["", "b:rows", "b:cols+rows", "b:rows+cols", "a:rows;b:cols", "a:rows;c:cols"]


def test_top_1_and_its_gradients(agrees: Any) -> None:
    def reference(x: tf.Tensor) -> list[tf.Tensor]:
        return [tf.reduce_max(x, 1), tf.argmax(x, 1, tf.int32)]

    agrees(lambda x: list(mtf.top_1(x, mtf.Dimension("b", 12))), reference, {"x": ("a:4 b:12 c:4", X)}, LAYOUTS)


def test_argmax_on_many_meshes(agrees_on_many_meshes: Any) -> None:
    x = np.random.default_rng(2).integers(0, 5, (12, 12, 12))
    agrees_on_many_meshes(
        lambda x: mtf.argmax(x, "b"), lambda x: tf.argmax(x, 1, tf.int32), {"x": ("a:12 b:12 c:12", x)}, order=0
    )


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.float16, np.float32, np.float64])
def test_of_several_maxima_the_first(agrees: Any, dtype: Any) -> None:
    x = {"x": ("a:4 b:12 c:4", TIES.astype(dtype))}
    agrees(lambda x: mtf.argmax(x, "b"), lambda x: tf.argmax(x, 1, tf.int32), x, ["", "b:rows", "b:cols+rows"], order=0)


def test_the_gradient_goes_to_the_first_of_several_maxima() -> None:
    def program(x: mtf.Tensor) -> list[Any]:
        return mtf.gradients(mtf.top_1(x, "b")[0], [x])

    for layout in ("", "b:rows", "b:cols"):
        x = np.array([1.0, 5.0, 2.0, 5.0])
        np.testing.assert_array_equal(
            interpret(program, {"x": ("b:4", x)}, "rows:2;cols:2", layout).results[0], [0, 1, 0, 0]
        )


def test_infinities_and_nan_are_found_alike_under_every_layout() -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[nan, 1, 2, 0], [1, nan, 0, nan], [-inf, -inf, nan, -inf], [nan] * 4, [-inf, inf, inf, 3]])
    for layout in ("", "b:rows", "b:cols+rows"):
        value, index = interpret(lambda x: mtf.top_1(x, "b"), {"x": ("a:5 b:4", x)}, "rows:2;cols:2", layout).results
        np.testing.assert_array_equal(value, [2, 1, -inf, -inf, inf])
        np.testing.assert_array_equal(index, [2, 0, 0, 0, 1])


def test_two_allreduces_over_a_split_dimension_and_none_otherwise() -> None:
    for layout, expected in (("b:rows+cols", ["max", "min"]), ("a:rows;c:cols", [])):
        done = interpret(lambda x: mtf.argmax(x, "b"), {"x": ("a:4 b:12 c:4", X)}, "rows:2;cols:2", layout)
        assert [c.step.reduction for c in done.plan.collectives] == expected


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x = mtf.placeholder(mesh, "batch:4 classes:8 none:0")
    with pytest.raises(ShapeError, match=r'no dimension "clases" .*; did you mean "classes"'):
        mtf.argmax(x, "clases")
    with pytest.raises(ShapeError, match=r'dimension "none" has size 0'):
        mtf.top_1(x, "none")
    with pytest.raises(DtypeError, match=r"bool has no largest element"):
        mtf.top_1(mtf.greater(x, 0.0), "classes")


@pytest.mark.parametrize("layout", ["", "b:rows", "b:cols+rows"])
def test_argmin_is_the_first_minimum(layout: str) -> None:
    """Also of integers whose negatives are not there, and of unsigned ones."""
    x = np.random.default_rng(0).integers(-128, -120, (3, 8)).astype(np.int8)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        wide = mtf.to_float(x)
        nan = mtf.where(mtf.less(wide, -127.0), np.nan, wide)
        return [mtf.argmin(t, "b") for t in (x, mtf.cast(x, tf.uint8), wide, nan)]

    found = interpret(program, {"x": ("a:3 b:8", x)}, "rows:2;cols:2", layout).results
    as_floats = np.where(x < -127, np.inf, x.astype(np.float32))
    expected = [x.argmin(1), x.astype(np.uint8).argmin(1), x.argmin(1), as_floats.argmin(1)]
    for ours, numpys in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, numpys)
