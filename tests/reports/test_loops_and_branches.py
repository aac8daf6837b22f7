"""Reports of other systems about gradients of loops, of branches, and of what is computed again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from tests.built_program import BuiltProgram

pytestmark = pytest.mark.quick

MESHES = (("rows:1", ""), ("rows:2", "n:rows"), ("rows:5", "n:rows"))
AGAIN = (None, "products", "nothing", "nested")
X = np.arange(1.0, 6.0)


def agreed(program: BuiltProgram) -> list[np.ndarray]:
    """The results of one core, which many give too."""
    first, *others = [program.interpret(mesh, layout).results for mesh, layout in MESHES]
    for other in others:
        for one, same in zip(first, other, strict=True):
            np.testing.assert_allclose(same, one, rtol=1e-13)
    return list(first)


@pytest.mark.parametrize("again", AGAIN)
def test_a_branch_in_a_scan_has_the_gradient_of_what_was_done(again: str | None) -> None:
    """jax-ml/jax#5900: three times x^4 by a loop that stands still at its end had the gradient of x^6 and more."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            goes_on = mtf.less(parts[0], 4.0)
            return mtf.cond(goes_on, lambda: carried[0] * x, lambda: carried[0]), []

        number = mtf.range(x.mesh, ("time", 6), tf.float64)
        (power,), _ = mtf.scan(body, mtf.ones_like(x), number, ("time", 6), recompute=again)
        return [power, *mtf.gradients(mtf.reduce_sum(power), [x])]

    power, grad = agreed(BuiltProgram(program, {"x": ("n:5", X)}))
    np.testing.assert_array_equal(power, X**4)
    np.testing.assert_array_equal(grad, 4 * X**3)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_every_result_of_a_scan_depends_on_every_element_before(is_reversed: bool) -> None:
    """jax-ml/jax#753: the gradient by the sequence gone along was 0."""

    def program(xs: mtf.Tensor, weights: mtf.Tensor) -> list[mtf.Tensor]:
        def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            total = carried[0] + 2.0 * parts[0]
            return [total], [total]

        start = mtf.zeros(xs.mesh, "n:5", tf.float64)
        _, (sums,) = mtf.scan(body, start, xs, ("time", 3), reverse=is_reversed)
        return mtf.gradients(mtf.reduce_sum(sums * weights), [xs])

    weights = np.random.default_rng(0).integers(-9, 9, size=(3, 5)).astype(np.float64)
    (grad,) = agreed(BuiltProgram(program, {"xs": ("time:3 n:5", weights), "weights": ("time:3 n:5", weights)}))
    later = weights.cumsum(0) if is_reversed else weights[::-1].cumsum(0)[::-1]
    np.testing.assert_array_equal(grad, 2 * later)


def test_what_a_loss_does_not_use_of_a_loop_has_no_part_in_its_gradient() -> None:
    """jax-ml/jax#1082: one of two carried values unused, and the gradient was an error of types."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            return [carried[0] + x, carried[1] * 2.0], [carried[0]]

        (first, second), (seen,) = mtf.scan(body, [x, x], mtf.ones(x.mesh, "time:3", tf.float64), ("time", 3))
        return [grad for y in (first, second, seen) for grad in mtf.gradients(mtf.reduce_sum(y), [x])]

    for grad, wanted in zip(agreed(BuiltProgram(program, {"x": ("n:5", X)})), (4.0, 8.0, 6.0), strict=True):
        np.testing.assert_array_equal(grad, np.full(5, wanted))


@pytest.mark.parametrize("again", AGAIN)
def test_a_gradient_of_ones_own_counts_in_a_loop_that_is_computed_again(again: str | None) -> None:
    """jax-ml/jax#4173, #1907, cybertronai/gradient-checkpointing#32: it was an error, or the plain gradient."""
    factors = np.array([1.0, 0.5, 2.0])

    def forward(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.square(x)]

    def backward(explicit: Sequence[mtf.Tensor], *_: object) -> list[mtf.Tensor]:
        (dy,) = _[-1]  # type: ignore[misc]
        return [dy * explicit[0] * 10.0]

    def program(x: mtf.Tensor, factors: mtf.Tensor) -> list[mtf.Tensor]:
        def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            return [y * parts[0] for y in mtf.custom_gradient(forward, backward, carried)], []

        (last,), _ = mtf.scan(body, x, factors, ("time", 3), recompute=again)
        return [last, *mtf.gradients(mtf.reduce_sum(last), [x])]

    last, grad = agreed(BuiltProgram(program, {"x": ("n:5", X), "factors": ("time:3", factors)}))
    value, wanted = X, np.ones(5)
    for factor in factors:
        wanted = wanted * factor * value * 10
        value = value**2 * factor
    np.testing.assert_array_equal(last, value)
    np.testing.assert_array_equal(grad, wanted)


@pytest.mark.parametrize("again", [None, "nothing"])
@pytest.mark.parametrize(("wanted", "most"), [(0, 5), (1, 5), (3, 5), (9, 2), (3, 0)])
def test_a_loop_of_any_length_has_its_gradient(wanted: int, most: int, again: str | None) -> None:
    """patrick-kidger/equinox#408: gradients of a loop with a bound; here with sums over cores and an accumulator."""

    def program(x: mtf.Tensor, wanted: mtf.Tensor) -> list[mtf.Tensor]:
        def body(i: mtf.Tensor, y: mtf.Tensor) -> list[mtf.Tensor]:
            return [i + 1, y * x + mtf.reduce_sum(y), mtf.reduce_sum(y)]

        start = [mtf.zeros(x.mesh, [], tf.int32), x]
        _, y, total = mtf.while_loop(
            lambda i, _: mtf.less(i, wanted), body, start, None, True, maximum_iterations=most, recompute=again
        )
        return [y, total, *mtf.gradients(mtf.reduce_sum(y) + total, [x])]

    found = agreed(BuiltProgram(program, {"x": ("n:5", X), "wanted": ("", np.int32(wanted))}))
    with tf.GradientTape() as tape:
        x = y = tf.constant(X)
        tape.watch(x)
        y, total = x, tf.zeros([], tf.float64)
        for _ in range(min(wanted, most)):
            y, total = y * x + tf.reduce_sum(y), total + tf.reduce_sum(y)
        loss = tf.reduce_sum(y) + total
    for one, other in zip(found, (y, total, tape.gradient(loss, x)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


def test_a_branch_that_is_not_taken_gives_a_gradient_of_0_and_no_nan() -> None:
    """sail-sg/jax_xc#28: NaN came from the branch that was not taken, where a choice of elements stood for it."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        total = mtf.reduce_sum(x)
        (taken,) = mtf.cond(total > -1.0, lambda: x * 2.0, lambda: mtf.sqrt(x - 100.0))
        (other,) = mtf.cond(total > 1e9, lambda: mtf.log(x * 0.0 - 1.0), lambda: x * 1.0)
        return mtf.gradients(mtf.reduce_sum(taken + other), [x])

    (grad,) = agreed(BuiltProgram(program, {"x": ("n:5", X)}))
    np.testing.assert_array_equal(grad, np.full(5, 3.0))


def test_one_tensor_given_twice_to_what_is_computed_again_has_both_gradients() -> None:
    """tensorflow/tensorflow#36999: a + a had the gradient of one a; #55304: none of it worked in a loop."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        def product(a: mtf.Tensor, b: mtf.Tensor) -> mtf.Tensor:
            return a * b + a

        def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            y = carried[0]
            return [mtf.recompute_grad(product, [y, y])], []

        once = mtf.recompute_grad(product, [x, x])
        (twice,), _ = mtf.scan(body, x, mtf.ones(x.mesh, "time:2", tf.float64), ("time", 2))
        return [grad for y in (once, twice) for grad in mtf.gradients(mtf.reduce_sum(y), [x])]

    once, twice = agreed(BuiltProgram(program, {"x": ("n:5", X)}))
    np.testing.assert_array_equal(once, 2 * X + 1)
    np.testing.assert_array_equal(twice, (2 * X + 1) * (2 * (X**2 + X) + 1))
