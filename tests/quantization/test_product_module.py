"""Modules of numbers of 8 bits compute what NumPy does in float64 or int64 with the same numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from meshtf.quantization.product_module import FLOAT8_TYPES, INT8_TYPES, NumberTypes, module_text
from meshtf.tensorflow_private.xla_operations import call_module

SIZES = {"b": 3, "h": 2, "i": 24, "o": 5}
EQUATIONS = ["bi,io->bo", "hbi,ioh->boh", "hbi,ihob->ohb", "bhi->bhi"]
generator = np.random.default_rng(0)


def bytes_of(names: str) -> np.ndarray:
    """Bytes of any float8 numbers but NaN. As int8 they reach from -128 to 126."""
    size = [SIZES[n] for n in names]
    return (generator.integers(0, 127, size) - 128 * generator.integers(0, 2, size)).astype(np.int8)


def computed(types: NumberTypes, equation: str, operands: list[np.ndarray], dtype: tf.DType) -> np.ndarray:
    """What XLA computes on this machine."""
    given, output = equation.split("->")
    text = module_text(types, [tf.TensorSpec(x.shape, tf.int8) for x in operands], given.split(","), output)
    assert text is not None
    result = tf.TensorSpec([SIZES[n] for n in output], dtype)
    run = tf.function(lambda *xs: call_module(xs, text, [result], "CPU"), jit_compile=True)
    return run(*map(tf.constant, operands))[0].numpy()


@pytest.mark.parametrize("equation", EQUATIONS)
def test_a_module_of_float8_is_einsum(equation: str) -> None:
    """Products are exact in float32, which rounds each sum."""
    operands = [bytes_of(names) for names in equation.split("->")[0].split(",")]
    found = computed(FLOAT8_TYPES, equation, operands, tf.float32)
    numbers = [x.view(ml_dtypes.float8_e4m3fn).astype(np.float64) for x in operands]
    bound = 24 * 2.0**-24 * np.einsum(equation, *map(np.abs, numbers))
    assert (np.abs(found - np.einsum(equation, *numbers)) <= bound).all()


@pytest.mark.parametrize("equation", EQUATIONS)
def test_a_module_of_int8_is_exact(equation: str) -> None:
    operands = [bytes_of(names) for names in equation.split("->")[0].split(",")]
    found = computed(INT8_TYPES, equation, operands, tf.int32)
    np.testing.assert_array_equal(found, np.einsum(equation, *(x.astype(np.int64) for x in operands)))


def test_other_contractions_have_none() -> None:
    """A dimension that one operand alone has is summed, or there are three operands."""
    for names, output in ((["bi", "o"], "bo"), (["bi", "io", "b"], "o")):
        specs = [tf.TensorSpec([SIZES[n] for n in own], tf.int8) for own in names]
        assert module_text(INT8_TYPES, specs, names, output) is None
