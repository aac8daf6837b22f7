"""Gelu and swish as one operation each, and one for the gradient: exact at the ends, rounded once, nothing shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.tensorflow_private.xla_modules import parsed_hlo

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


@pytest.mark.parametrize(("name", "function"), [("gelu", mtf.gelu), ("swish", mtf.swish)])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16], ids=lambda dtype: dtype.name)
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
