"""Modules of float8 numbers compute what NumPy does in float64 with the same numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from meshtf.quantization.float8_module import module_text
from meshtf.tensorflow_private.xla_operations import call_module

SIZES = {"b": 3, "h": 2, "i": 24, "o": 5}
generator = np.random.default_rng(0)


def bytes_of(size: list[int]) -> np.ndarray:
    """Bytes of any numbers but NaN."""
    return (generator.integers(0, 127, size) - 128 * generator.integers(0, 2, size)).astype(np.int8)


@pytest.mark.parametrize("equation", ["bi,io->bo", "hbi,ioh->boh", "hbi,ihob->ohb", "bhi->bhi"])
def test_a_module_is_einsum(equation: str) -> None:
    """XLA compiles it for this machine. Products are exact in float32, which rounds each sum."""
    given, output = equation.split("->")
    names = given.split(",")
    operands = [bytes_of([SIZES[n] for n in own]) for own in names]
    text = module_text([tf.TensorSpec(x.shape, tf.int8) for x in operands], names, output)
    assert text is not None
    result = tf.TensorSpec([SIZES[n] for n in output], tf.float32)
    run = tf.function(lambda *xs: call_module(xs, text, [result], "CPU"), jit_compile=True)
    (found,) = run(*map(tf.constant, operands))
    numbers = [x.view(ml_dtypes.float8_e4m3fn).astype(np.float64) for x in operands]
    bound = 24 * 2.0**-24 * np.einsum(equation, *map(np.abs, numbers))
    assert (np.abs(found.numpy() - np.einsum(equation, *numbers)) <= bound).all()


def test_other_contractions_have_none() -> None:
    """A dimension that one operand alone has is summed, or there are three operands."""
    for names, output in ((["bi", "o"], "bo"), (["bi", "io", "b"], "o")):
        specs = [tf.TensorSpec([SIZES[n] for n in own], tf.int8) for own in names]
        assert module_text(specs, names, output) is None
