"""Gradients of products, of every order, at zeros and among numbers of very different sizes, under every layout."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import meshtf as mtf
from meshtf.testing import interpret
from tests.built_program import BuiltProgram

pytestmark = pytest.mark.quick

OF_FOUR: dict[str, list[float]] = {
    "no zero": [2.0, 3.0, -4.0, 0.5],
    "a zero": [0.0, 3.0, 4.0, 5.0],
    "two zeros": [0.0, 3.0, 0.0, 5.0],
    "three zeros": [0.0, 0.0, 0.0, 5.0],
    "nothing else": [0.0, 0.0, 0.0, 0.0],
    "tiny and huge": [1e-200, 1e-200, 1e200, 1.0],
}
OF_OTHER_SIZES: dict[str, list[float]] = {
    "one element": [3.0],
    "two elements": [0.0, 3.0],
    "seven": [1.0, 0.0, 3.0, -1.0, 2.0, 0.5, -0.0],
}
LAYOUTS = [("rows:1", ""), ("rows:2", "n:rows"), ("rows:2;cols:2", "n:rows+cols")]


def left_out(x: np.ndarray, *places: int) -> float:
    """The product of all elements but those at different places, rounded once; 0 if two places are one."""
    others = map(Fraction, np.delete(x, places).tolist())
    return float(math.prod(others, start=Fraction(1))) if len({*places}) == len(places) else 0.0


def derivatives(x: mtf.Tensor, v: mtf.Tensor) -> list[mtf.Tensor]:
    """The gradient, that of its product with v, and so on; of each point by itself, where there are several."""
    points = [d for d in x.shape if d.name == "points"]
    found, y = [], mtf.reduce_prod(x, output_shape=points)
    for _ in range(3):
        found += mtf.gradients([y], [x])
        y = mtf.reduce_sum(found[-1] * v, output_shape=points)
    return found


def written_out(x: np.ndarray, v: np.ndarray) -> list[list[float]]:
    """The derivatives at one point."""
    places = range(x.size)
    return [
        [left_out(x, i) for i in places],
        [sum(v[j] * left_out(x, i, j) for j in places) for i in places],
        [sum(v[j] * v[k] * left_out(x, i, j, k) for j in places for k in places) for i in places],
    ]


@pytest.mark.parametrize("point", OF_OTHER_SIZES)
def test_gradients_of_products_are_products_of_the_others(point: str) -> None:
    x = np.array(OF_OTHER_SIZES[point])
    n, v = x.size, np.random.default_rng(0).normal(size=x.size)
    expected = written_out(x, v)
    for mesh, layout in LAYOUTS:
        found = interpret(derivatives, {"x": (f"n:{n}", x), "v": (f"n:{n}", v)}, mesh, layout, max_padding=1.0).results
        for order, (ours, numpys) in enumerate(zip(found, expected, strict=True), 1):
            np.testing.assert_allclose(ours, numpys, rtol=1e-13, err_msg=f"order {order} under {layout!r}")


def test_so_are_those_of_several_points_side_by_side() -> None:
    x, v = np.array(list(OF_FOUR.values())), np.random.default_rng(0).normal(size=[len(OF_FOUR), 4])
    expected = [written_out(*each) for each in zip(x, v, strict=True)]
    program = BuiltProgram(derivatives, {"x": ("points:6 n:4", x), "v": ("points:6 n:4", v)})
    for mesh, layout in LAYOUTS:
        for order, found in enumerate(program.interpret(mesh, layout).results):
            for point, ours, orders in zip(OF_FOUR, found, expected, strict=True):
                what = f"{point}, order {order + 1} under {layout!r}"
                np.testing.assert_allclose(ours, orders[order], rtol=1e-13, err_msg=what)


@pytest.mark.parametrize("layout", ["", "a:rows;b:cols", "b:cols+rows", "a:cols"])
def test_products_over_several_dimensions(layout: str) -> None:
    x = np.random.default_rng(1).integers(-2, 3, (4, 2, 4)).astype(float)
    x[0, 1], x[2, 0] = 0.0, [1.0, 0.0, 2.0, 0.0]

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        kept, order = (mtf.reduce_prod(x, output_shape=shape) for shape in ("c:2", "b:4 c:2 a:4"))
        return [*mtf.gradients([kept], [x]), *mtf.gradients([order], [x])]

    found = interpret(program, {"x": ("a:4 c:2 b:4", x)}, "rows:2;cols:2", layout).results
    others = [
        [[math.prod(np.delete(x[:, c].ravel(), 4 * a + b)) for b in range(4)] for c in range(2)] for a in range(4)
    ]
    np.testing.assert_array_equal(found[0], others)
    np.testing.assert_array_equal(found[1], np.ones_like(x))


def test_complex_products_have_the_conjugates_of_the_others() -> None:
    x = np.array([0.0, 1.0 + 2.0j, 3.0 - 1.0j])
    found = interpret(lambda x: mtf.gradients([mtf.reduce_prod(x)], [x]), {"x": ("n:3", x)}, "rows:1").results
    np.testing.assert_allclose(found[0], np.conj([x[1] * x[2], 0.0, 0.0]), rtol=1e-13)


def test_single_precision_loses_nothing_on_the_way() -> None:
    """Of the product itself, 1e-20, the middle is less than any number of single precision but 0."""
    x = np.array([1e-20, 1e-20, 1e20], np.float32)
    found = interpret(lambda x: mtf.gradients([mtf.reduce_prod(x)], [x]), {"x": ("n:3", x)}, "rows:1").results
    np.testing.assert_allclose(found[0], [1.0, 1.0, 0.0], rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("layout", ["", "n:rows"])
def test_gradients_of_products_of_float16_are_rounded_once(layout: str) -> None:
    """The product of the first two is infinite in float16, and so was the product of the others."""
    x = np.array([300.0, 300.0, 2.0**-7, 0.1], np.float16)
    inputs = {"x": ("n:4", x)}
    (grad,) = interpret(lambda x: mtf.gradients([mtf.reduce_prod(x)], [x]), inputs, "rows:2", layout).results
    np.testing.assert_array_equal(grad, np.array([left_out(x, i) for i in range(4)], np.float16))
