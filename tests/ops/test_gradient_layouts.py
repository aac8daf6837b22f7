"""A gradient has its primal's layout, also where the rules alone would not allow the operation that computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret

W = np.random.default_rng(0).standard_normal((8, 6))
X = np.random.default_rng(1).standard_normal((4, 8))

# Under the rules "vocab" has `rows`; each program gives them to "hidden" of w, which frees "vocab" there. The operation
# that computes the gradient cannot know: it has "hidden" over `rows` from an operand, and "vocab" from none.
PROGRAMS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda w, x: mtf.einsum([x, w], output_shape="batch:4 hidden:6"), lambda w, x: x @ w),
    (lambda w, x: mtf.reduce_sum(w, reduced_dim="vocab"), lambda w, x: tf.reduce_sum(w, 0)),
    (lambda w, x: mtf.reduce_max(w, reduced_dim="vocab"), lambda w, x: tf.reduce_max(w, 0)),
    (lambda w, x: mtf.top_1(w, "vocab")[0], lambda w, x: tf.reduce_max(w, 0)),
    (lambda w, x: mtf.unstack(w, "vocab")[3], lambda w, x: w[3]),
    (lambda w, x: mtf.gather(w, 3, "vocab"), lambda w, x: w[3]),
    (lambda w, x: mtf.reduce_logsumexp(w, "vocab"), lambda w, x: tf.reduce_logsumexp(w, 0)),
]


@pytest.mark.parametrize(("ours", "reference"), PROGRAMS)
def test_gradient_of_an_overridden_tensor(ours: Callable[..., Any], reference: Callable[..., Any]) -> None:
    def program(w: mtf.Tensor, x: mtf.Tensor) -> list[Any]:
        own = mtf.with_layout(w, "hidden:rows")
        return mtf.gradients(mtf.square(ours(own, x)), [own, w])

    done = interpret(
        program, {"w": ("vocab:8 hidden:6", W), "x": ("batch:4 vocab:8", X)}, "rows:2;cols:2", "vocab:rows"
    )
    w = tf.constant(W)
    with tf.GradientTape() as tape:
        tape.watch(w)
        y = tf.square(reference(w, tf.constant(X)))
    expected = tape.gradient(y, w)
    for grad in done.results:
        assert_close(grad, expected, terms=(8, 8, FUNCTION_TERMS))
    assert [v.layout.axes for v in done.plan.fetches] == [((), ("rows",)), (("rows",), ())]


def test_gradients_start_in_the_layout_of_what_is_differentiated() -> None:
    def program(x: mtf.Tensor) -> list[Any]:
        y = mtf.slice(mtf.replicate(x), 0, 3, "vocab")  # 3 would not divide under the rules
        return mtf.gradients([y], [x])

    done = interpret(program, {"x": ("batch:4 vocab:8", X)}, "rows:2;cols:2", "vocab:rows")
    np.testing.assert_array_equal(done.results[0], np.tile(np.arange(8) < 3, (4, 1)))
