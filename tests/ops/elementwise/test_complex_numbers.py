"""Complex numbers in every operation that has a meaning for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError
from meshtf.testing import FUNCTION_TERMS, assert_close, assert_layout_invariant, interpret
from tests.ops.complex_gradients import check, complex_array

RNG = np.random.default_rng(0)
X, Y = complex_array(RNG, 4, 6), complex_array(RNG, 6, 4)
R, S = RNG.standard_normal((4, 6)), RNG.standard_normal(4)
LAYOUTS = ["", "a:rows", "b:rows;a:cols", "a:rows+cols"]

ELEMENTWISE = {
    "exp": tf.exp, "expm1": tf.math.expm1, "log": tf.math.log, "log1p": tf.math.log1p, "sqrt": tf.sqrt,
    "rsqrt": tf.math.rsqrt, "square": tf.square, "reciprocal": tf.math.reciprocal, "sin": tf.sin, "cos": tf.cos,
    "tanh": tf.tanh, "sigmoid": tf.sigmoid, "negative": tf.negative, "conj": tf.math.conj, "real": tf.math.real,
    "imag": tf.math.imag, "abs": tf.abs, "angle": tf.math.angle, "identity": tf.identity,
}  # fmt: skip


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_functions(name: str) -> None:
    order = 1 if name in ("abs", "angle") else 2  # TensorFlow's own second ones are not there, or wrong
    check(
        lambda x: getattr(mtf, name)(x),
        lambda x: ELEMENTWISE[name](x),
        {"x": ("a:4 b:6", X)},
        ["", "a:rows"],
        order=order,
    )


def test_the_sign_of_a_number_turns_with_it() -> None:
    """Its derivative is not 0, as that of a real sign is; TensorFlow's is that of x / |x|."""
    with_zeros = np.where(np.eye(4, 6) == 1, 0, X)
    check(
        lambda x: mtf.sign(x),
        lambda x: tf.math.divide_no_nan(x, tf.cast(tf.abs(x), x.dtype)),
        {"x": ("a:4 b:6", X)},
        ["", "a:rows"],
        order=1,
    )
    inputs = {"x": ("a:4 b:6", with_zeros)}
    (gradient,) = interpret(lambda x: mtf.gradients(mtf.real(mtf.sign(x)), x), inputs, "one:1").results
    assert not np.any(gradient[with_zeros == 0])
    assert np.all(gradient[with_zeros != 0])


def test_arithmetic() -> None:
    check(
        lambda x, y: [x + y, x - y, x * y, x / y, mtf.pow(x=x, y=y), 2j / x, x * (1 - 2j), x / (1 + 1j), 3.0 - x],
        lambda x, y: [
            x + tf.transpose(y), x - tf.transpose(y), x * tf.transpose(y), x / tf.transpose(y),
            tf.pow(x, tf.transpose(y)), 2j / x, x * (1 - 2j), x / (1 + 1j), 3.0 - x,
        ],
        {"x": ("a:4 b:6", X), "y": ("b:6 a:4", Y)},
        LAYOUTS,
        order=1,
    )  # fmt: skip


def test_second_gradients_of_products() -> None:
    check(
        lambda x, y: [x * y, x / y],
        lambda x, y: [x * tf.transpose(y), x / tf.transpose(y)],
        {"x": ("a:4 b:6", X), "y": ("b:6 a:4", Y)},
        LAYOUTS[:3],
    )


def test_products_and_sums() -> None:
    y = complex_array(np.random.default_rng(1), 6, 4)
    check(
        lambda x, y: [mtf.einsum([x, y], "a:4 c:4"), mtf.einsum([x, x, y], "c:4"), mtf.reduce_mean(x, reduced_dim="b")],
        lambda x, y: [x @ y, tf.einsum("ab,ab,bc->c", x, x, y), tf.reduce_mean(x, 1)],
        {"x": ("a:4 b:6", X), "y": ("b:6 c:4", y)},
        [*LAYOUTS, "b:rows", "c:cols;b:rows"],
    )


def test_reduce_prod() -> None:
    check(lambda x: mtf.reduce_prod(x, reduced_dim="b"), lambda x: tf.reduce_prod(x, 1), {"x": ("a:4 b:6", X)},
          LAYOUTS, order=1)  # fmt: skip


def test_from_parts_and_casts() -> None:
    check(
        lambda r, s: [mtf.complex(r, s), mtf.cast(r, tf.complex128) * 1j, mtf.cast(mtf.complex(s, s), tf.float64)],
        lambda r, s: [tf.complex(r, tf.broadcast_to(s[:, None], r.shape)), tf.cast(r, tf.complex128) * 1j, s],
        {"r": ("a:4 b:6", R), "s": ("a:4", S)},
        LAYOUTS,
    )


def test_an_imaginary_number_is_true() -> None:
    """TensorFlow's cast asks for the real part alone."""
    x = np.array([1j, 0, -2, complex(0, np.nan)], np.complex64)
    found = mtf.testing.interpret(lambda x: mtf.cast(x, tf.bool), {"x": ("n:4", x)}, "one:1").results
    np.testing.assert_array_equal(found, x.astype(bool))


def test_moves_lookups_and_choices() -> None:
    where = np.array([0, 3, 5, 9])
    check(
        lambda x, where: [
            mtf.reshape(x, "c:24"), mtf.concat([x, x], "b"), mtf.slice(x, 1, 4, "b"), mtf.gather(x, where, "b"),
            mtf.where(mtf.greater(mtf.real(x), 0.0), x, mtf.conj(x)),
        ],
        lambda x, where: [
            tf.reshape(x, [24]), tf.concat([x, x], 1), x[:, 1:5],
            tf.stack([x[:, 0], x[:, 3], x[:, 5], 0 * x[:, 0]]),
            tf.where(tf.math.real(x) > 0, x, tf.math.conj(x)),
        ],
        {"x": ("a:4 b:6", X), "where": ("n:4", where)},
        ["a:rows"],
        order=0,
    )  # fmt: skip


def test_the_angle_of_real_numbers_is_numpys() -> None:
    x = np.array([1.0, -1.0, 0.0, np.inf, -np.inf, np.nan], np.float32)
    found = interpret(mtf.angle, {"x": ("a:6", x)}, "rows:2", "a:rows").results
    np.testing.assert_array_equal(found, np.angle(x))


def test_parts_of_a_pending_sum_are_pending() -> None:
    def program(x: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
        z = mtf.einsum([x, y], "a:4 c:4")
        return mtf.real(z) + mtf.imag(z)

    done = interpret(program, {"x": ("a:4 b:6", X), "y": ("b:6 c:4", Y)}, "rows:2", "b:rows")
    assert [(c.step.kind, c.input.dtype) for c in done.plan.collectives] == [("all_reduce", tf.float64)]
    assert_close(done.results, (X @ Y).real + (X @ Y).imag, terms=(12, 12))


def test_abs_at_zero_has_gradient_zero() -> None:
    x = np.array([0, 3 + 4j])
    done = interpret(lambda x: mtf.gradients(mtf.abs(x), [x]), {"x": ("a:2", x)}, "rows:2", "a:rows")
    assert_close(done.results[0], [0, 0.6 + 0.8j], terms=FUNCTION_TERMS)


@pytest.mark.parametrize(
    ("dtype", "layouts"),
    [
        (np.complex64, ["a:rows;b:cols", "b:cols;c:rows"]),
        *(
            pytest.param(dtype, ["a:rows", "b:cols", "a:rows;b:cols", "b:cols;c:rows"], marks=pytest.mark.long)
            for dtype in (np.complex64, np.complex128)
        ),
    ],
)
def test_every_collective_on_virtual_cpus(dtype: Any, layouts: list[str]) -> None:
    def program(x: mtf.Tensor, y: mtf.Tensor) -> list[mtf.Tensor]:
        z = mtf.einsum([x, y], "a:4 c:4")  # allreduce, or a reduce-scatter
        turned = mtf.with_layout(mtf.exp(x), "b:rows")  # alltoall
        return [mtf.replicate(z) * z, turned, mtf.reduce_prod(x, reduced_dim="b"), mtf.abs(x)]

    inputs = {"x": ("a:4 b:6", X.astype(dtype)), "y": ("b:6 c:4", Y.astype(dtype))}
    assert_layout_invariant(program, inputs, layouts)


def test_what_has_no_meaning_is_refused() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x = mtf.placeholder(mesh, "a:4", tf.complex64)
    before = len(mesh.graph.operations)
    for call in (mtf.relu, mtf.softplus, mtf.erf, mtf.elu, mtf.floor, mtf.reduce_max, lambda x: mtf.maximum(x, x),
                 lambda x: x < x, lambda x: x // x, lambda x: mtf.argmax(x, "a")):  # fmt: skip
        with pytest.raises(DtypeError, match=r"complex64"):
            call(x)
    n = mtf.placeholder(mesh, "a:4", tf.int32)
    with pytest.raises(DtypeError, match=r"no complex numbers of int32; convert to tf.float32"):
        mtf.complex(n, n)
    with pytest.raises(DtypeError, match=r"a real floating tensor is needed, not complex64; take mtf.real"):
        mtf.softplus(x)
    assert len(mesh.graph.operations) == before + 1
