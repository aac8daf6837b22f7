"""NumPy's functions of tensors: each makes the operations of the function that it means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.ops.numpy_protocols.ufuncs import UNDER_ANOTHER_NAME
from tests.tensor_face.same_graph import assert_same_graph

ALIKE = {
    "add", "bitwise_and", "bitwise_or", "bitwise_xor", "ceil", "cos", "cosh", "divide", "exp", "exp2", "expm1",
    "floor", "greater", "greater_equal", "hypot", "left_shift", "less", "less_equal", "log", "log10", "log1p",
    "log2", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum",
    "multiply", "negative", "reciprocal", "right_shift", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh",
}  # fmt: skip
INPUTS = {
    "x": mtf.TensorSpec("n:6 m:4"),
    "y": mtf.TensorSpec("m:4"),
    "z": mtf.TensorSpec("n:6 m:2"),
    "ids": mtf.TensorSpec("n:6", tf.int32),
}

# fmt: off
OLD_AND_NEW: dict[str, tuple[Any, Any]] = {
    "one operand": (lambda t: mtf.exp(t.x), lambda t: np.exp(t.x)),
    "two operands": (lambda t: mtf.maximum(t.x, t.y), lambda t: np.maximum(t.x, t.y)),
    "a number on the left": (lambda t: mtf.sub(2.0, t.x), lambda t: np.subtract(np.float32(2), t.x)),
    "a number's operator": (lambda t: mtf.multiply(2.0, t.x), lambda t: np.float32(2) * t.x),
    "an array without axes": (lambda t: mtf.less(2.0, t.x), lambda t: np.array(2.0) < t.x),
    "another name": (lambda t: mtf.abs(t.x), lambda t: np.abs(t.x)),
    "logic": (lambda t: mtf.logical_not(t.x > 0.0), lambda t: np.invert(t.x > 0.0)),
    "truth by bits": (lambda t: mtf.logical_and(t.x > 0.0, t.y > 0.0), lambda t: np.bitwise_and(t.x > 0.0, t.y > 0.0)),
    "bits": (lambda t: mtf.bitwise_and(t.ids, 3), lambda t: np.bitwise_and(t.ids, 3)),
    "sum": (lambda t: mtf.reduce_sum(t.x, reduced_dim="n"), lambda t: np.sum(t.x, axis="n")),
    "sum over two": (lambda t: mtf.reduce_sum(t.x, output_shape=[]), lambda t: np.sum(t.x, axis=("n", "m"))),
    "sum of all": (lambda t: mtf.reduce_sum(t.x), lambda t: np.sum(t.x)),
    "mean": (lambda t: mtf.reduce_mean(t.x, reduced_dim="n"), lambda t: np.mean(t.x, axis="n")),
    "std": (lambda t: mtf.reduce_std(t.x, reduced_dim="n"), lambda t: np.std(t.x, axis="n")),
    "max": (lambda t: mtf.reduce_max(t.x, reduced_dim="n"), lambda t: np.max(t.x, "n")),
    "argmax": (lambda t: mtf.argmax(t.x, "n"), lambda t: np.argmax(t.x, axis="n")),
    "cumsum": (lambda t: mtf.cumsum(t.x, "n"), lambda t: np.cumsum(t.x, axis="n")),
    "sort": (lambda t: mtf.sort(t.x, "n"), lambda t: np.sort(t.x, axis="n")),
    "flip": (lambda t: mtf.reverse(t.x, "n"), lambda t: np.flip(t.x, axis="n")),
    "roll": (lambda t: mtf.roll(t.x, 2, "n"), lambda t: np.roll(t.x, 2, axis="n")),
    "split": (lambda t: mtf.split(t.x, "n", 3), lambda t: np.split(t.x, 3, axis="n")),
    "where": (lambda t: mtf.where(t.x > 0.0, t.x, 0.0), lambda t: np.where(t.x > 0.0, t.x, 0.0)),
    "concatenate": (lambda t: mtf.concat([t.x, t.z], "m"), lambda t: np.concatenate([t.x, t.z], axis="m")),
    "stack": (lambda t: mtf.stack([t.x, t.x], "copies"), lambda t: np.stack([t.x, t.x], axis="copies")),
    "clip": (lambda t: mtf.clip_by_value(t.x, 0.0, 1.0), lambda t: np.clip(t.x, 0.0, 1.0)),
    "round": (lambda t: mtf.round(t.x), lambda t: np.round(t.x)),
    "ones_like": (lambda t: mtf.ones_like(t.x), lambda t: np.ones_like(t.x)),
}
# fmt: on


@pytest.mark.parametrize("case", OLD_AND_NEW)
def test_a_function_of_numpy_makes_the_operations_of_the_language(case: str) -> None:
    assert_same_graph(*OLD_AND_NEW[case], INPUTS)


def test_functions_of_one_name_mean_the_same() -> None:
    """A new operation whose name NumPy has too must be listed here, once it is known to mean the same."""
    ufuncs = {
        name for name in dir(np) if isinstance(getattr(np, name), np.ufunc) and getattr(np, name).__name__ == name
    }
    assert ufuncs & set(mtf.ops.__all__) == ALIKE | {"equal", "matmul", "not_equal"}, "the last three are refused"


def test_functions_with_another_name_are_functions_of_both() -> None:
    for name in UNDER_ANOTHER_NAME:
        assert isinstance(getattr(np, name), np.ufunc)
    assert not [name for name in UNDER_ANOTHER_NAME.values() if name not in mtf.ops.__all__]
