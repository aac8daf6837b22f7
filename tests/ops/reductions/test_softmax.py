"""softmax, log_softmax, reduce_logsumexp."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret, largest
from tests.house.sharpest import sharpest

RNG = np.random.default_rng(0)
X = 3 * RNG.standard_normal((4, 12, 4))
X_INPUT = {"x": ("a:4 b:12 c:4", X)}
LAYOUTS = ["", "b:rows", "b:cols+rows", "b:rows+cols", "a:rows;b:cols", "a:rows;c:cols"]
FUNCTIONS = [
    (mtf.softmax, lambda x, axis: tf.nn.softmax(x, axis)),
    (mtf.log_softmax, lambda x, axis: tf.nn.log_softmax(x, axis)),
    (mtf.reduce_logsumexp, lambda x, axis: tf.reduce_logsumexp(x, axis)),
]


def _with_extra(name: str, x: tf.Tensor, extra: tf.Tensor) -> tf.Tensor:
    """The last dimension of x, with one more element in it."""
    column = tf.broadcast_to(extra, x.shape[:-1])[..., None]
    both = tf.concat([x, tf.cast(column, x.dtype)], -1)
    total = tf.reduce_logsumexp(both, -1, keepdims=True)
    return {"softmax": tf.exp(x - total), "log_softmax": x - total, "reduce_logsumexp": total[..., 0]}[name]


@pytest.mark.parametrize(
    ("dim", "ours", "reference"),
    [
        *(("b", *functions) for functions in FUNCTIONS),
        ("c", *FUNCTIONS[0]),
        *(pytest.param("c", *functions, marks=pytest.mark.long) for functions in FUNCTIONS[1:]),
    ],
)
def test_values_and_gradients(agrees: Any, ours: Any, reference: Any, dim: str) -> None:
    axis = "abc".index(dim)
    agrees(lambda x: ours(x, dim), lambda x: reference(x, axis), X_INPUT, LAYOUTS)


@pytest.mark.parametrize(("ours", "reference"), FUNCTIONS)
def test_on_many_meshes(agrees_on_many_meshes: Any, ours: Any, reference: Any) -> None:
    x = RNG.standard_normal((12, 12))
    agrees_on_many_meshes(lambda x: ours(x, "b"), lambda x: reference(x, 1), {"x": ("a:12 b:12", x)})


@pytest.mark.parametrize(
    ("shape", "ours"),
    sharpest(
        itertools.product(["", "b:12", "b:12 a:4"], [mtf.softmax, mtf.log_softmax, mtf.reduce_logsumexp]),
        [("", mtf.reduce_logsumexp), ("b:12", mtf.log_softmax), ("b:12 a:4", mtf.softmax), ("", mtf.softmax)],
    ),
)
def test_extra_logit_has_a_gradient(agrees: Any, ours: Any, shape: str) -> None:
    sizes = [int(pair.split(":")[1]) for pair in shape.split()]
    extra = np.asarray(RNG.standard_normal(sizes))
    agrees(
        lambda x, extra: ours(x, "c", extra_logit=extra),
        lambda x, extra: _with_extra(ours.__name__, x, tf.transpose(extra)),
        {**X_INPUT, "extra": (shape, extra)},
        ["", "c:rows", "c:cols+rows", "a:rows;b:cols"],
    )


def test_extra_logit_may_be_a_number_and_may_bring_dimensions(agrees: Any) -> None:
    agrees(
        lambda x: mtf.softmax(x, "c", extra_logit=0.5), lambda x: _with_extra("softmax", x, tf.constant(0.5)), X_INPUT
    )
    agrees(
        lambda x, extra: mtf.softmax(x, "c", extra_logit=extra),
        lambda x, extra: tf.transpose(_with_extra("softmax", x[None] + 0 * extra[:, None, None, None],
                                                  extra[:, None, None]), [1, 2, 3, 0]),
        {**X_INPUT, "extra": ("n:4", RNG.standard_normal(4))},
    )  # fmt: skip


@pytest.mark.parametrize(("ours", "reference"), FUNCTIONS[::2])
def test_elements_of_minus_infinity(agrees: Any, ours: Any, reference: Any) -> None:
    x = X.copy()
    x[:, 1:7] = -np.inf  # all that some cores hold
    x[2, 7:] = -np.inf
    agrees(
        lambda x: ours(x, "b"),
        lambda x: reference(x, 1),
        {"x": ("a:4 b:12 c:4", x)},
        ["", "b:rows", "b:cols+rows"],
        order=1,
    )


@pytest.mark.parametrize("layout", ["", "b:rows", "b:cols+rows"])
def test_log_softmax_of_minus_infinity(layout: str) -> None:
    x = X.copy()
    x[:, 1:7] = -np.inf
    weights = RNG.standard_normal((4, 12, 4))

    def program(x: mtf.Tensor, weights: mtf.Tensor) -> list[Any]:
        y = mtf.log_softmax(x, "b")
        return [y, *mtf.gradients([y], [x], [weights])]

    inputs = {"x": ("a:4 b:12 c:4", x), "weights": ("a:4 b:12 c:4", weights)}
    y, gradient = interpret(program, inputs, "rows:2;cols:2", layout).results
    assert_close(y, tf.nn.log_softmax(x, 1), terms=(2 * FUNCTION_TERMS, 12), magnitude=largest(X))
    assert_close(
        gradient,
        weights - tf.nn.softmax(x, 1) * weights.sum(1, keepdims=True),
        terms=(3 * FUNCTION_TERMS, 2 * 12),
        magnitude=largest(X) * largest(weights),
    )


def test_a_row_of_minus_infinity_with_a_finite_extra_logit() -> None:
    def program(x: mtf.Tensor, extra: mtf.Tensor) -> list[Any]:
        y = mtf.softmax(x, "b", extra_logit=extra)
        total = mtf.reduce_logsumexp(x, "b", extra_logit=extra)
        return [y, total, *mtf.gradients([y, total], [x, extra])]

    for layout in ("", "b:rows"):
        inputs = {"x": ("b:4", np.full(4, -np.inf)), "extra": ("", np.asarray(0.5))}
        y, total, dx, d_extra = interpret(program, inputs, "rows:2;cols:2", layout).results
        np.testing.assert_array_equal(y, np.zeros(4))
        np.testing.assert_array_equal(dx, np.zeros(4))
        assert (total, d_extra) == (0.5, 1.0)


@pytest.mark.parametrize("layout", ["", "b:rows", "b:cols+rows"])
def test_logsumexp_of_infinities(layout: str) -> None:
    inf = np.inf
    x = np.array([[-inf] * 4, [1.0, inf, 0.0, 2.0], [-inf, 1000.0, -inf, 1000.0]])
    y = interpret(lambda x: mtf.reduce_logsumexp(x, "b"), {"x": ("a:3 b:4", x)}, "rows:2;cols:2", layout).results
    assert_close(y, [-inf, inf, 1000 + np.log(2)], terms=2 * FUNCTION_TERMS)


@pytest.mark.parametrize("layout", ["", "b:rows", "b:cols+rows"])
@pytest.mark.parametrize(("ours", "reference"), FUNCTIONS)
@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_narrow_floats_are_summed_in_float32(layout: str, ours: Any, reference: Any, dtype: tf.DType) -> None:
    x = tf.cast(RNG.standard_normal((2, 4096)), dtype).numpy()
    y = interpret(lambda x: ours(x, "b"), {"x": ("a:2 b:4096", x)}, "rows:2;cols:2", layout).results
    expected = reference(tf.cast(x, tf.float64), 1)
    assert_close(y, expected, terms=1, magnitude=np.abs(expected))


def test_large_logits_do_not_overflow(agrees: Any) -> None:
    x = {"x": ("a:4 b:12 c:4", 1000 * X)}
    agrees(lambda x: mtf.log_softmax(x, "b"), lambda x: tf.nn.log_softmax(x, 1), x, LAYOUTS, order=1)


def test_two_allreduces_over_a_split_dimension_and_none_otherwise() -> None:
    for ours in (mtf.softmax, mtf.log_softmax, mtf.reduce_logsumexp):
        for layout, expected in (("b:rows+cols", ["max", "add"]), ("a:rows;c:cols", [])):
            done = interpret(lambda x, ours=ours: ours(x, "b"), X_INPUT, "rows:2;cols:2", layout)
            assert [c.step.reduction for c in done.plan.collectives] == expected


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x = mtf.placeholder(mesh, "batch:4 classes:8", name="x")
    whole = mtf.placeholder(mesh, "batch:4", tf.int32, name="whole")
    for ours in (mtf.softmax, mtf.log_softmax, mtf.reduce_logsumexp):
        with pytest.raises(ShapeError, match=r'no dimension "clases" .*; did you mean "classes"'):
            ours(x, "clases")
        with pytest.raises(ShapeError, match=r"has size 8 in .*, not 9"):
            ours(x, mtf.Dimension("classes", 9))
        with pytest.raises(ShapeError, match=r'extra_logit .* must not have dimension "classes"'):
            ours(x, "classes", extra_logit=x)
        with pytest.raises(DtypeError, match=r"a floating tensor is needed, not int32; convert with mtf.cast"):
            ours(whole, "batch")
        with pytest.raises(DtypeError, match=r"float32 and int32 meet"):
            ours(x, "classes", extra_logit=whole)


@pytest.mark.parametrize("ours", [mtf.softmax, mtf.log_softmax])
@pytest.mark.parametrize("dim", ["c", "f"])
def test_six_dimensions(agrees: Any, ours: Any, dim: str) -> None:
    """TensorFlow's own kernel takes at most five on CPUs."""
    x, axis = np.linspace(-3.0, 3.0, 64).reshape([2] * 6) ** 3, "abcdef".index(dim)

    def reference(x: tf.Tensor) -> tf.Tensor:
        log = x - tf.reduce_logsumexp(x, axis, keepdims=True)
        return log if ours is mtf.log_softmax else tf.exp(log)

    agrees(lambda x: ours(x, dim), reference, {"x": ("a:2 b:2 c:2 d:2 e:2 f:2", x)}, ["", "a:rows;c:cols"])


def test_logsumexp_of_nothing_but_minus_infinity_has_the_gradient_0() -> None:
    """Adding to -inf does not change it. Beside others its own gradient is 0; of inf there is none."""
    x = np.array([[-np.inf, -np.inf], [-np.inf, 1.0], [0.0, 0.0], [np.inf, 0.0]])

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        y = mtf.reduce_logsumexp(x, "columns")
        (first,) = mtf.gradients([y], [x])
        return [y, first, *mtf.gradients([first * mtf.range(x.mesh, x.shape[1], x.dtype)], [x])]

    for layout in ("", "columns:cores", "lines:cores"):
        y, first, second = interpret(program, {"x": ("lines:4 columns:2", x)}, "cores:2", layout).results
        np.testing.assert_allclose(y, [-np.inf, 1.0, np.log(2.0), np.inf])
        np.testing.assert_allclose(first, [[0.0, 0.0], [0.0, 1.0], [0.5, 0.5], [np.nan, 0.0]], rtol=1e-14)
        np.testing.assert_allclose(second[:3], [[0.0, 0.0], [0.0, 0.0], [-0.25, 0.25]], atol=1e-14)


@pytest.mark.parametrize("function", [mtf.softmax, mtf.log_softmax])
def test_padding_has_no_weight(function: Any) -> None:
    """Three numbers far below 0 on two cores: a fourth, if it was taken for 0, would have all of the weight."""
    x = RNG.standard_normal((2, 3)) - 50.0
    weights = np.exp(x - x.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True)
    found = interpret(lambda x: function(x, "b"), {"x": ("a:2 b:3", x)}, "rows:2", "b:rows").results
    assert_close(found, np.log(expected) if function is mtf.log_softmax else expected, terms=3 + 2 * FUNCTION_TERMS)
