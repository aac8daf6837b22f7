"""Activations of straight pieces against their definitions in TensorFlow; at their corners, one of the two slopes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import interpret


def test_values_and_gradients(agrees: Any) -> None:
    agrees(
        lambda x: [mtf.relu6(x), mtf.hard_tanh(x), mtf.hard_sigmoid(x), mtf.hard_swish(x)],
        lambda x: [
            tf.nn.relu6(x),
            tf.clip_by_value(x, -1.0, 1.0),
            tf.nn.relu6(x + 3) / 6,
            x * tf.nn.relu6(x + 3) / 6,
        ],
        {"x": ("a:4 b:6", np.linspace(-7.3, 8.1, 24).reshape(4, 6))},
        ["a:rows;b:cols", "b:cols+rows"],
    )


def test_slopes_at_corners() -> None:
    x = np.array([-3.0, -1.0, 0.0, 1.0, 3.0, 6.0])

    def program(x: mtf.Tensor) -> list[Any]:
        functions = (mtf.relu6, mtf.hard_tanh, mtf.hard_sigmoid)
        return [mtf.gradients([f(x)], [x])[0] for f in functions]

    relu6, tanh, sigmoid = interpret(program, {"x": ("n:6", x)}, "one:1").results
    np.testing.assert_array_equal(relu6, [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(tanh, [0, 1, 1, 1, 0, 0])
    np.testing.assert_allclose(sigmoid, np.array([0, 1, 1, 1, 1, 0]) / 6, rtol=1e-15)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.float16, tf.bfloat16], ids=lambda d: d.name)
def test_gradients_of_hard_swish_at_infinities(dtype: tf.DType) -> None:
    """They are 0 and 1, as in JAX. A product of the slopes of its factors would be NaN."""
    x = np.array([-np.inf, -4.0, 0.0, 4.0, np.inf])

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        x = mtf.cast(x, dtype)
        (dx,) = mtf.gradients([mtf.hard_swish(x)], [x])
        return [mtf.to_float(dx), mtf.to_float(mtf.gradients([dx], [x])[0])]

    first, second = interpret(program, {"x": ("n:5", x)}, "rows:2", "n:rows", max_padding=1.0).results
    np.testing.assert_array_equal(first, [0, 0, 0.5, 1, 1])
    np.testing.assert_array_equal(second[[0, 1, 3, 4]], 0)
