from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.layers import activation_function, activation_names

ROW = mtf.Dimension("row", 8)


def test_every_name_is_a_function_that_keeps_the_shape(check_layers: Callable[..., Any]) -> None:
    in_tensorflow: dict[str, Callable[..., tf.Tensor]] = {
        "gelu": lambda x: tf.nn.gelu(x, approximate=True),
        "gelu_exact": lambda x: tf.nn.gelu(x, approximate=False),
        "linear": tf.identity,
        "celu": tf.nn.elu,
        "hard_sigmoid": lambda x: tf.nn.relu6(x + 3) / 6,
        "hard_swish": lambda x: x * tf.nn.relu6(x + 3) / 6,
        "hard_tanh": lambda x: tf.clip_by_value(x, -1, 1),
        "log_sigmoid": tf.math.log_sigmoid,
        "mish": lambda x: x * tf.tanh(tf.math.softplus(x)),
        "soft_sign": tf.nn.softsign,
        "squared_relu": lambda x: tf.nn.relu(x) ** 2,
    }

    def layers(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [activation_function(name)(x) for name in activation_names()]

    def formulas(variables: Any, x: tf.Tensor) -> list[tf.Tensor]:
        others = {name: getattr(tf.nn, name, getattr(tf.math, name, None)) for name in activation_names()}
        return [(others | in_tensorflow)[name](x) for name in activation_names()]

    check_layers(layers, formulas, {"x": ([ROW], np.linspace(-2.9, 2.8, 8, dtype=np.float32))}, ["row:rows+cols"])


def test_functions_and_none() -> None:
    assert activation_function(mtf.tanh) is mtf.tanh
    x = object()
    assert activation_function(None)(x) is x  # type: ignore[arg-type]


def test_misspelt_name() -> None:
    with pytest.raises(GraphError, match=r"'rellu' is not a function; did you mean \"relu\"\?; there are celu, elu,"):
        activation_function("rellu")
    with pytest.raises(GraphError, match=r"'hardtanh' is not a function; did you mean \"hard_tanh\"\?"):
        activation_function("hardtanh")
