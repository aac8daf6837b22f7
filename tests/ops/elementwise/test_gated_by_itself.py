"""Gelu and swish as one operation each, and one for the gradient: exact at the ends, rounded once, nothing shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.tensorflow_private.xla_modules import parsed_hlo
from tests.house.sharpest import sharpest

XS = np.array([-1e20, -1e6, -20.0, -3.0, -0.3, 0.0, 0.3, 3.0, 20.0, 1e6, 1e20])


def in_float64(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The function and its slope. Beyond 40 the sigmoid is 0 or 1 to the last digit."""
    near = np.clip(x, -40, 40)
    linear, cubic = (1.0, 0.0) if name == "swish" else (2 * np.sqrt(2 / np.pi), 2 * np.sqrt(2 / np.pi) * 0.044715)
    s = 1 / (1 + np.exp(-np.clip(linear * near + cubic * near**3, -700, 700)))
    s = np.where(x < -40, 0.0, np.where(x > 40, 1.0, s))
    return x * s, s + near * s * (1 - s) * (linear + 3 * cubic * near**2)


def with_gradient(function: Callable[[mtf.Tensor], mtf.Tensor], dtype: tf.DType) -> mtf.Function:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        y = function(x)
        (gradient,) = mtf.gradients([y], [x])
        assert gradient is not None
        return [y, gradient]

    mtf.virtual_gpus(4)
    return mtf.function(program, mtf.GpuMeshImpl("all:1", ""), {"x": mtf.TensorSpec([("n", XS.size)], dtype)})


@pytest.mark.parametrize(
    ("dtype", "name", "function"),
    sharpest(
        [
            (dtype, *function)
            for dtype in (tf.float32, tf.bfloat16, tf.float16)
            for function in (("gelu", mtf.gelu), ("swish", mtf.swish))
        ],
        [(tf.float32, "gelu", mtf.gelu), (tf.bfloat16, "swish", mtf.swish), (tf.float16, "gelu", mtf.gelu)],
    ),
)
def test_values_and_slopes(name: str, function: Callable[[mtf.Tensor], mtf.Tensor], dtype: tf.DType) -> None:
    given = np.clip(XS, -6e4, 6e4) if dtype == tf.float16 else XS
    x = tf.cast(given, dtype)
    step = with_gradient(function, dtype)
    expected = in_float64(name, tf.cast(x, tf.float64).numpy())
    unit = {tf.float32: 2.0**-23, tf.bfloat16: 2.0**-8, tf.float16: 2.0**-11}[dtype]
    for found, exact in zip(step(x=x), expected, strict=True):
        # A result is rounded once at the end. The sigmoid in the slope comes from tanh, to a unit of float32 at 1.
        error = np.abs(tf.cast(found, tf.float64).numpy() - exact)
        bound = 8 * 2.0**-23 * np.maximum(np.abs(exact), 1.0) + unit * np.abs(exact)
        assert (error <= bound).all(), (found, exact)


def test_forward_and_backward_share_no_sigmoid() -> None:
    hlo = with_gradient(mtf.gelu, tf.bfloat16).hlo()
    assert hlo is not None
    found = Counter(i.opcode for c in parsed_hlo(hlo).computations for i in c.instructions)
    assert (found["logistic"], found["tanh"]) == (1, 1)


def test_it_is_one_operation_and_its_gradient_another() -> None:
    step = mtf.function(
        lambda x: mtf.gradients([mtf.gelu(x)], [x])[0], mtf.PlanMeshImpl("all:1", ""), {"x": mtf.TensorSpec("n:8")}
    )
    kinds = [o.name.rsplit("/", 1)[-1] for o in step.graph.operations]
    assert "gelu_gradient" in kinds
    assert not {"tanh", "sigmoid"} & set(kinds)


@pytest.mark.parametrize("dtype", [tf.float64, tf.bfloat16, tf.float16], ids=lambda dtype: dtype.name)
def test_further_gradients(dtype: tf.DType) -> None:
    """By central differences of the slope in float64. Nothing is infinite or NaN, however far from 0."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        found = [mtf.gelu(x)]
        for _ in range(3):
            (gradient,) = mtf.gradients([found[-1]], [x])
            assert gradient is not None
            found.append(gradient)
        return found[2:]

    x = tf.cast(np.append(np.clip(XS, -6e4, 6e4) if dtype == tf.float16 else XS, [-8.0, 8.0, np.inf]), dtype)
    found = mtf.testing.interpret(program, {"x": ("n:14", x)}, "all:2", "n:all").results
    slope, h = lambda x: in_float64("gelu", x)[1], 1e-3
    near = np.clip(tf.cast(x, tf.float64).numpy(), -30, 30)
    second = (slope(near + h) - slope(near - h)) / (2 * h)
    third = (slope(near + h) - 2 * slope(near) + slope(near - h)) / h**2
    unit = {tf.float64: 1e-5, tf.bfloat16: 2.0**-8, tf.float16: 2.0**-10}[dtype]
    for y, expected in zip(found, (second, third), strict=True):
        np.testing.assert_allclose(tf.cast(y, tf.float64), expected, rtol=unit, atol=1e-5)


@pytest.mark.parametrize("function", [mtf.gelu, mtf.swish], ids=["gelu", "swish"])
def test_further_gradients_of_an_operand_that_is_broadcast(function: Callable[[mtf.Tensor], mtf.Tensor]) -> None:
    """The gradient's operation takes the operand as it was before, without the dimension. Each order sums over it."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        found = [[function(x)], [function(mtf.broadcast(x, [*x.shape, ("rows", 4)]))]]
        for _ in range(3):
            for each in found:
                (gradient,) = mtf.gradients([each[-1]], [x])
                assert gradient is not None
                each.append(gradient)
        return [*found[0][1:], *found[1][1:]]

    x = np.linspace(-3.0, 3.0, 6)
    for layout in ("n:all", "rows:all"):
        found = mtf.testing.interpret(program, {"x": ("n:6", x)}, "all:2", layout).results
        np.testing.assert_allclose(found[3:], [4.0 * y for y in found[:3]], rtol=1e-12)
