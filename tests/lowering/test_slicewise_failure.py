"""A function of the user's that fails while a program runs, on one core of four."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import CollectiveError, ExecutionError
from meshtf.lowering.slicewise_failure import slicewise_failure
from meshtf.mesh_impl.spmd.step_errors import translate

X = np.ones([4, 2], np.float32)
X[2:] = 3
ON_CORE_2 = "tf_fn failed on core 2 (rows:1 cols:0): "
SLICE = "[batch:2..3 d:0..1] float32 of [batch:4/rows d:2], values from 3.0 to 3.0"
CANCELLED = tf.errors.CancelledError(None, None, "RecvAsync is cancelled.\n\t [[{{node Identity_7/_70}}]]")


def asserting(x: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies([tf.debugging.assert_less(x, 2.5, message="my own words")]):
        return tf.identity(x)


def resizing(x: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tf.boolean_mask(x, x < 2.5), x.shape)


def python(x: tf.Tensor) -> tf.Tensor:
    def least(a: tf.Tensor) -> tf.Tensor:
        if a.numpy().max() > 2.5:
            raise ValueError("words of Python")
        return a

    return tf.ensure_shape(tf.py_function(least, [x], x.dtype), x.shape)


def lowered(tf_fn: Callable[[tf.Tensor], tf.Tensor]) -> tuple[mtf.Lowering, list[mtf.Tensor]]:
    graph = mtf.Graph("program")
    mesh = mtf.Mesh(graph)
    with graph:
        x = mtf.placeholder(mesh, "batch:4 d:2", name="x")
        y = mtf.slicewise(tf_fn, [x], splittable_dims=["batch"])
        loss = mtf.reduce_sum(mtf.square(y))
    return mtf.Lowering(graph, {mesh: mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows")}), [loss]


@pytest.mark.parametrize(
    ("tf_fn", "words"),
    [
        (asserting, "my own words"),
        (resizing, "Input to reshape is a tensor with 0 values, but the requested shape has 4"),
        (python, "ValueError: words of Python"),
    ],
)
def test_the_error_has_its_own_words_the_line_and_the_core(tf_fn: Callable[[tf.Tensor], tf.Tensor], words: str) -> None:
    lowering, fetches = lowered(tf_fn)
    execution = lowering.execution(fetches)
    np.testing.assert_array_equal(execution([tf.ones([4, 2])])[0], 8)
    with pytest.raises(ExecutionError) as caught:
        execution([tf.constant(X)])
    lost = slicewise_failure(translate(CANCELLED, {}), execution.plan, lowering, [tf.constant(X)])  # type: ignore[arg-type]
    for text in (str(caught.value), str(lost)):
        assert text.startswith(f"{tf_fn.__name__}: {ON_CORE_2}"), text
        assert words in text
        assert SLICE in text
        assert f"at {__file__}" in text
    np.testing.assert_array_equal(execution([tf.ones([4, 2])])[0], 8)


def test_in_a_first_step_too() -> None:
    """Where TensorFlow may say only that a group of cores could not be made."""
    lowering, fetches = lowered(asserting)
    plan = lowering.execution(fetches).plan
    error = CollectiveError("all_reduce over mesh axes rows, for loss, at loss.py:3\nfailed: group is cancelled")
    text = str(slicewise_failure(error, plan, lowering, [tf.constant(X)]))
    assert text.startswith(f"asserting: {ON_CORE_2}")
    assert text.endswith("The process must be restarted.")


def test_inside_a_loop() -> None:
    graph = mtf.Graph("program")
    mesh = mtf.Mesh(graph)
    with graph:
        x = mtf.placeholder(mesh, "batch:4 d:2", name="x")
        (y,) = mtf.while_loop(
            lambda i, y: mtf.less(i, 3),
            lambda i, y: (i + 1, mtf.slicewise(asserting, [y + 1.0], splittable_dims=["batch"])),
            [mtf.constant(mesh, 0, dtype=tf.int32), x],
        )[1:]
    lowering = mtf.Lowering(graph, {mesh: mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows")})
    lost = translate(CANCELLED, {})
    assert isinstance(lost, ExecutionError)
    text = str(slicewise_failure(lost, lowering.execution([y]).plan, lowering, [tf.zeros([4, 2])]))
    assert "tf_fn failed on core 0 (rows:0 cols:0)" in text
    assert "values from 3.0 to 3.0" in text


def test_an_error_of_something_else_stays() -> None:
    lowering, fetches = lowered(asserting)
    plan = lowering.execution(fetches).plan
    assert slicewise_failure(ExecutionError("loss, at another line: no"), plan, lowering, [tf.constant(X)]) is None
    lost = translate(CANCELLED, {})
    assert isinstance(lost, ExecutionError)
    assert slicewise_failure(lost, plan, lowering, [tf.ones([4, 2])]) is None
