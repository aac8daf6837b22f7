"""Reports of other systems about single numbers: gradients at 0, quotients, conversions, what a type can hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, FeedError, UsageError
from meshtf.testing import build, interpret
from tests.built_program import BuiltProgram

pytestmark = pytest.mark.quick

INTEGERS = [tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.uint32, tf.int64, tf.uint64]


def derivative(fn: Callable[[mtf.Tensor], mtf.Tensor], x: np.ndarray, order: int) -> np.ndarray:
    """Of this order, at each element."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        y = fn(x)
        for _ in range(order):
            (grad,) = mtf.gradients(mtf.reduce_sum(y), [x])
            y = mtf.zeros_like(x) if grad is None else grad
        return y

    return interpret(program, {"x": (f"n:{len(x)}", x)}, "rows:2", "n:rows").results


@pytest.mark.parametrize("exponent", [0, 1, 2, 3])
def test_whole_powers_have_all_derivatives_at_0(exponent: int) -> None:
    """tensorflow/tfjs#346: 0 * 0^-1 was NaN, in the first derivative of x^0 and in the third of x^2."""
    x = np.array([0.0, -0.0, -2.0, 3.0])
    for order in range(exponent + 3):
        factor = np.prod(np.arange(exponent, exponent - order, -1), dtype=np.float64)
        expected = factor * x ** (exponent - order) if order <= exponent else np.zeros(4)
        np.testing.assert_array_equal(derivative(lambda x: x**exponent, x, order), expected, f"derivative {order}")


def test_powers_of_two_tensors_have_gradients_at_0() -> None:
    """pytorch/pytorch#95180: NaN for a base of 0, once the exponent is 0 or the power infinite."""
    base, exponent = np.array([0.0, 0.0, 0.0, -2.0, 2.0]), np.array([0.0, 1.0, -1.0, 2.0, 3.0])

    def program(x: mtf.Tensor, p: mtf.Tensor) -> list[mtf.Tensor | None]:
        y = mtf.pow(x, p)
        grads = mtf.gradients(mtf.reduce_sum(y), [x, p])
        return [y, *grads, *mtf.gradients(mtf.reduce_sum(grads[1]), [p])]

    inputs = {"x": ("n:5", base), "p": ("n:5", exponent)}
    y, by_base, by_exponent, second = interpret(program, inputs, "rows:2", "n:rows").results
    np.testing.assert_array_equal(y, [1, 0, np.inf, 4, 8])
    np.testing.assert_array_equal(by_base, [0, 1, -np.inf, -4, 12])
    np.testing.assert_allclose(by_exponent, [0, 0, 0, 0, 8 * np.log(2)], rtol=1e-15)
    np.testing.assert_allclose(second, [0, 0, 0, 0, 8 * np.log(2) ** 2], rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_gradient_of_gelu_is_1_or_0_far_out(dtype: Any) -> None:
    """facebookresearch/fairseq#2235: 256^2 is infinite in float16, and the gradient was infinity times 0."""
    x = np.array([-60000.0, -256.0, -41.0, 41.0, 256.0, 60000.0], dtype)
    np.testing.assert_array_equal(derivative(mtf.gelu, x, 0), np.maximum(x, 0))
    np.testing.assert_array_equal(derivative(mtf.gelu, x, 1), x > 0)


def test_gelu_is_the_same_function_in_float16() -> None:
    """To the rounding of its products; beyond 8, where x is limited, the tanh has been 1 for long."""
    x = np.linspace(-10, 10, 401).astype(np.float16)
    expected = derivative(mtf.gelu, x.astype(np.float64), 0)
    np.testing.assert_allclose(derivative(mtf.gelu, x, 0), expected, rtol=8 * 2**-11, atol=4 * 2**-11)


def test_the_norm_of_nothing_has_a_gradient_through_its_square() -> None:
    """jax-ml/jax#21723: the norm itself has none at 0, there and here; the sum of squares does."""
    zeros = np.zeros(4)
    assert np.isnan(derivative(lambda x: mtf.sqrt(mtf.reduce_sum(mtf.square(x))), zeros, 1)).all()
    np.testing.assert_array_equal(derivative(lambda x: mtf.reduce_sum(mtf.square(x)), zeros, 1), zeros)


@pytest.mark.parametrize("dtype", [np.float16, tf.bfloat16.as_numpy_dtype, np.float32, np.float64])
def test_a_quotient_is_the_floor_of_the_exact_one(dtype: Any) -> None:
    """numpy/numpy#6127: 1 // 0.2 was the floor of a rounded quotient, and disagreed with the remainder."""
    rng = np.random.default_rng(0)
    a = np.concatenate([[1, -1, 6, -1e-3, 7, -7, 0.5, 3], rng.uniform(-9, 9, 56)]).astype(dtype)
    b = np.concatenate([[0.2, 0.2, 0.1, 1, 2, 2, -0.1, -0.2], rng.choice([-0.3, 0.1, 0.7, 1, 3], 56)]).astype(dtype)
    program = BuiltProgram(lambda a, b: [mtf.floordiv(a, b), mtf.mod(a, b)], {"a": ("n:64", a), "b": ("n:64", b)})
    quotient, remainder = program.interpret("rows:2", "n:rows").results
    exact = np.floor_divide(a.astype(np.longdouble), b.astype(np.longdouble))
    np.testing.assert_array_equal(quotient, exact.astype(dtype))
    np.testing.assert_array_equal(remainder, np.mod(a, b))


@pytest.mark.parametrize("dtype", [np.float16, tf.bfloat16.as_numpy_dtype, np.float32])
def test_a_quotient_of_many_digits_is_rounded_once(dtype: Any) -> None:
    """154 // 1.3125 was 118 in bfloat16, and not 117: the difference to the remainder was rounded, then divided."""
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(*ends, 4096).astype(dtype) for ends in ((-4000, 4000), (0.5, 3)))
    inputs = {"a": ("n:4096", a), "b": ("n:4096", b)}
    quotient, remainder = interpret(lambda a, b: [a // b, a % b], inputs, "rows:1").results
    exact = np.floor_divide(a.astype(np.longdouble), b.astype(np.longdouble))
    np.testing.assert_array_equal(quotient, exact.astype(dtype))
    np.testing.assert_array_equal(remainder, (a - exact * b).astype(dtype))


def test_quotients_by_0_and_by_infinity() -> None:
    """tensorflow/tensorflow#56130: what has no remainder is still the floor of the quotient."""
    a, b = np.array([1.0, -1.0, np.inf, 1.0, 1e-37]), np.array([0.0, 0.0, 2.0, np.inf, -2.0])
    done = interpret(lambda a, b: mtf.floordiv(a, b), {"a": ("n:5", a), "b": ("n:5", b)}, "rows:1")
    np.testing.assert_array_equal(done.results, [np.inf, -np.inf, np.inf, 0, -1])


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_quotients_of_integers_are_pythons(dtype: Any) -> None:
    """ml-explore/mlx#4346: quotients were rounded toward 0 and remainders were not; a sum on the way overflowed."""
    a = np.array([-7, 7, -7, 7, -1, 1, -5, 5, 120, -120, 127], dtype)
    b = np.array([2, 2, -2, -2, 3, -3, 3, -3, -27, -27, -127], dtype)
    inputs = {"a": ("n:11", a), "b": ("n:11", b)}
    quotient, remainder = interpret(lambda a, b: [a // b, a % b], inputs, "rows:1").results
    np.testing.assert_array_equal(quotient, [int(x) // int(y) for x, y in zip(a, b, strict=True)])
    np.testing.assert_array_equal(remainder, [int(x) % int(y) for x, y in zip(a, b, strict=True)])


@pytest.mark.parametrize("source", [np.float16, tf.bfloat16.as_numpy_dtype, np.float32, np.float64])
@pytest.mark.parametrize("target", INTEGERS, ids=lambda dtype: dtype.name)
def test_a_float_beyond_an_integer_type_becomes_its_end(source: Any, target: tf.DType) -> None:
    """tensorflow/tensorflow#126212 and #121242: NaN and 256 as a uint8 depended on who compiled the program."""
    with np.errstate(over="ignore"):
        x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 300, -300, 1e20, -1e20, -0.75, 0.75, 127, -1]).astype(source)
    expected = [0 if np.isnan(v) else int(np.clip(np.trunc(float(v)), target.min, target.max)) for v in x]
    expected = [min(max(v, target.min), target.max) for v in expected]
    done = interpret(lambda x: mtf.cast(x, target), {"x": ("n:13", x)}, "rows:2", "n:rows")
    assert done.results.tolist() == expected


def test_numbers_from_0_on_are_rounded_once_or_refused() -> None:
    """pytorch/pytorch#137774: bfloat16 counted 255, 256, 256, 256, 258. An int8 here would go on with -128."""
    program = lambda mesh: mtf.range(mesh, ("n", 300), tf.bfloat16)  # noqa: E731
    for mesh, layout in (("rows:1", ""), ("rows:4", "n:rows"), ("rows:7", "n:rows")):
        expected = np.arange(300).astype(tf.bfloat16.as_numpy_dtype)
        np.testing.assert_array_equal(interpret(program, {}, mesh, layout).results, expected)
    mesh = mtf.Mesh(mtf.Graph())
    assert mtf.range(mesh, ("n", 128), tf.int8).dtype == tf.int8
    with pytest.raises(DtypeError, match=r"\[n:129\] goes up to 128, but int8 only to 127; use tf.int32"):
        mtf.range(mesh, ("n", 129), tf.int8)


@pytest.mark.parametrize(
    ("value", "dtype", "first"),
    [([1, 300], tf.uint8, "300"), ([2.0, 1.5], tf.int32, "1.5"), ([1, 2**40], tf.int32, "1099511627776")]
    + [([1.0, np.nan], tf.int32, "nan"), ([-1, 0], tf.uint64, "-1"), ([0, 1j], tf.float32, "0j")],
)
def test_an_array_that_a_type_cannot_hold_is_refused(value: Any, dtype: tf.DType, first: str) -> None:
    """numpy/numpy#23912: [127, 128] as int8 wrapped around, where the number 128 alone was refused."""
    with pytest.raises(DtypeError, match=f"{first}, in the array, is no {dtype.name}; convert the array"):
        mtf.constant(mtf.Mesh(mtf.Graph()), value, "n:2", dtype)


def test_an_array_that_a_type_can_hold_is_not_refused() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    for value, dtype in (
        ([2.0, 3.0], tf.int8),
        ([True, False], tf.float32),
        ([0, 2], tf.bool),
        ([2**24 + 1], tf.float32),
    ):
        mtf.constant(mesh, value, f"n:{len(value)}", dtype)


def test_fed_arrays_are_converted_by_nobody() -> None:
    """tensorflow/tensorflow#9902: a float array fed to an integer input lost its fractions without a word."""
    step = mtf.function(lambda x: x + 1, mtf.SpmdMeshImpl("rows:1", ""), inputs={"x": mtf.TensorSpec("n:2", tf.int32)})
    for fed, what in (
        (np.array([1.5, 2.5]), "has dtype float64"),
        (np.array([1, 2**40]), "has dtype int64"),
        ([1, 2**40], "has values from 1 to 1099511627776, beyond int32"),
        ([1.5, 2.0], "has float64 values"),
    ):
        with pytest.raises(FeedError, match=what):
            step(x=fed)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.complex64])
def test_powers_known_now_have_gradients_in_every_type(dtype: tf.DType) -> None:
    x = np.array([0.0, 2.0, -4.0]).astype(dtype.as_numpy_dtype)
    for exponent in (0, 1, 2, 3.0):
        wanted = exponent * x.astype(np.complex128) ** max(exponent - 1, 0)
        found = derivative(lambda x: x**exponent, x, 1).astype(np.complex128)  # noqa: B023
        np.testing.assert_allclose(found, wanted, rtol=2**-7 if dtype == tf.bfloat16 else 1e-6)


def test_a_negative_power_of_integers_is_refused() -> None:
    x = mtf.placeholder(mtf.Mesh(mtf.Graph()), "n:4", tf.int32)
    with pytest.raises(UsageError, match="int32 has no negative powers, such as -1; convert"):
        mtf.pow(x, -1)


def test_tensorflow_and_xla_convert_and_divide_alike() -> None:
    """The same kernels, compiled and not: in one program some may be one and some the other."""
    x = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 300, -300, 1e20, -0.75, 127, -1], np.float32)
    a, b = (np.random.default_rng(3).choice(c, 512).astype(np.float32) for c in ([1, -1, 6, 7.5, -3], [0.2, -0.1, 0.7]))

    def kernels(x: tf.Tensor, a: tf.Tensor, b: tf.Tensor) -> list[tf.Tensor]:
        def body(x: mtf.Tensor, a: mtf.Tensor, b: mtf.Tensor) -> list[mtf.Tensor]:
            return [*(mtf.cast(x, dtype) for dtype in INTEGERS), mtf.floordiv(a, b), mtf.mod(a, b)]

        inputs = {"x": mtf.TensorSpec("n:11"), "a": mtf.TensorSpec("m:512"), "b": mtf.TensorSpec("m:512")}
        graph, found = build(body, inputs)
        values = dict(zip((operation.outputs[0] for operation in graph.operations[:3]), (x, a, b), strict=True))
        return [y.operation.kernel(*(values[i] for i in y.operation.inputs)) for y in found]

    arrays = [tf.constant(array) for array in (x, a, b)]
    compiled = tf.function(kernels, jit_compile=True, autograph=False)(*arrays)
    for one, other in zip(kernels(*arrays), compiled, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_error_function_ends_at_1(dtype: Any) -> None:
    """tensorflow/tensorflow#124773: in float64 it was NaN at 1e200, and at infinity."""
    x = np.array([0.5, 29, 31, 1e20, -1e20, np.inf, -np.inf, np.nan], dtype)
    x[3:5] **= 10 if dtype == np.float64 else 1

    def program(x: mtf.Tensor) -> list[mtf.Tensor | None]:
        y = mtf.erf(x)
        return [y, mtf.gelu(x, approximate=False), mtf.gradients(mtf.reduce_sum(y), [x])[0]]

    y, gelu, slope = interpret(program, {"x": ("n:8", x)}, "rows:2", "n:rows").results
    np.testing.assert_allclose(y, np.vectorize(math.erf)(x), rtol=1e-6)
    np.testing.assert_array_equal(gelu[1:5], np.maximum(x[1:5], 0))
    np.testing.assert_allclose(slope, 2 / np.sqrt(np.pi) * np.exp(-(np.minimum(abs(x), 1e9) ** 2)), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, tf.bfloat16.as_numpy_dtype])
def test_far_positions_are_told_apart_in_narrow_types(dtype: Any) -> None:
    """NVIDIA/Megatron-LM#535: positions were cast to float16, which has no odd number above 2048."""
    positions = np.array([0, 2047, 2048, 2049, 32767], np.int32)
    x = np.ones([5, 8], dtype)
    program = lambda x, at: mtf.layers.rotary_embedding(x, at)  # noqa: E731
    found = interpret(program, {"x": ("length:5 d_kv:8", x), "at": ("length:5", positions)}, "rows:1").results
    angles = positions[:, None] * 10000.0 ** (-np.arange(4) / 4)
    expected = np.concatenate([np.cos(angles) - np.sin(angles), np.cos(angles) + np.sin(angles)], 1)
    # An angle of 32767 has an error of 2^-10 in float32; the result is up to 2, and rounded twice.
    rounding = 2**-10 if dtype == np.float16 else 2**-7
    np.testing.assert_allclose(found.astype(np.float64), expected, atol=2**-9 + rounding)
