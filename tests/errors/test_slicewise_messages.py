"""What is said of functions that do not do as slicewise was told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import testing

INPUTS: dict[str, Any] = {
    "x": ("batch:4 hidden:8 d:6", np.ones([4, 8, 6], np.float32)),
    "w": ("hidden:8", np.ones(8, np.float32)),
    "n": ("batch:4", np.ones(4, np.int32)),
}


def raised(build: Callable[..., Any], kind: type[Exception] = mtf.errors.MeshtfError) -> str:
    with pytest.raises(kind) as caught:
        testing.interpret(build, INPUTS, "rows:2;cols:2", "batch:rows;hidden:cols")
    return str(caught.value)


def test_a_wrong_size_is_told_with_the_slices() -> None:
    def body(x: mtf.Tensor, w: mtf.Tensor, n: mtf.Tensor) -> mtf.Tensor:
        return mtf.slicewise(lambda x, w: x[:, 1:], [x, w], splittable_dims=["batch", "hidden"], name="cut")

    text = raised(body, mtf.errors.ShapeError)
    assert "cut: tf_fn returned a tensor of shape (2, 3, 6)" in text
    assert "the slice of output [batch:4/rows hidden:8/cols d:6] float32 has [2, 4, 6]" in text
    assert "must not be in splittable_dims" in text
    assert "[4] float32 of w [hidden:8/cols]" in text
    assert f"at {__file__}" in text
    assert "tensorflow" not in text


def test_a_wrong_dtype_or_number_of_outputs() -> None:
    def dtype(x: mtf.Tensor, w: mtf.Tensor, n: mtf.Tensor) -> mtf.Tensor:
        return mtf.cwise(lambda x: x > 0, x)

    def number(x: mtf.Tensor, w: mtf.Tensor, n: mtf.Tensor) -> mtf.Tensor:
        return mtf.cwise(lambda x: [x, x], x)

    assert "tf_fn returned bool for the slice of output" in raised(dtype, mtf.errors.DtypeError)
    assert "give output_dtype=tf.bool" in raised(dtype)
    assert "tf_fn returned 2 tensors, but the operation has 1 output" in raised(number, mtf.errors.ShapeError)


def test_an_error_in_the_function() -> None:
    def broken(x: tf.Tensor) -> tf.Tensor:
        return tf.matmul(x, tf.ones([5, 5]))

    def branching(x: tf.Tensor) -> tf.Tensor:
        return x if tf.reduce_sum(x) > 0 else -x

    def body(x: mtf.Tensor, w: mtf.Tensor, n: mtf.Tensor) -> list[Any]:
        return [mtf.slicewise(broken, [x])]

    def other(x: mtf.Tensor, w: mtf.Tensor, n: mtf.Tensor) -> list[Any]:
        return [mtf.cwise(branching, x)]

    text = raised(body, mtf.errors.ExecutionError)
    line = broken.__code__.co_firstlineno + 1
    assert f"broken: tf_fn raised ValueError at {__file__}:{line}: Dimensions must be equal, but are 6 and 5" in text
    assert "Traceback" not in text
    assert f"at {__file__}:{branching.__code__.co_firstlineno + 1}" in raised(other, mtf.errors.ExecutionError)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"splittable_dims": ["bach"]}, 'splittable dimension "bach" is in no operand; did you mean "batch"?'),
        (
            {"splittable_dims": ["batch"], "output_shape": "hidden:8"},
            'splittable dimension "batch" is not in output [hidden:8]: each core would compute that output from its '
            "own part of batch; leave it out of splittable_dims",
        ),
        ({"splittable_dims": ["d"], "output_shape": "d:3"}, 'size 6 in the operands and 3 in output [d:3]'),
        ({"grad_function": 1}, "grad_function must be a function of (operation, *dys), 0 for no gradient"),
        ({"output_shape": ["d:6", "d:6"], "output_dtype": [tf.int32]}, "2 output shapes were given and 1 output"),
    ],
)  # fmt: skip
def test_arguments_are_checked_when_written(arguments: dict[str, Any], message: str) -> None:
    def body(x: mtf.Tensor, w: mtf.Tensor, n: mtf.Tensor) -> Any:
        return mtf.slicewise(tf.identity, [x], **arguments)

    text = raised(body)
    assert message in text
    assert "mtf.slicewise: " in text
    assert "batch:4 hidden:8 d:6] float32" in text
    assert f"at {__file__}" in text


def test_wrong_things_given() -> None:
    def no_function(x: mtf.Tensor, **_: Any) -> Any:
        return mtf.slicewise(x, tf.exp)  # type: ignore[arg-type]

    def no_operand(x: mtf.Tensor, **_: Any) -> Any:
        return mtf.slicewise(tf.exp, [])

    def few_gradients(x: mtf.Tensor, w: mtf.Tensor, **_: Any) -> Any:
        y = mtf.cwise(lambda w, v: w * v, [w, w], grad_function=lambda op, dy: [dy])
        return mtf.gradients([y], [w])

    def bad_gradient(x: mtf.Tensor, w: mtf.Tensor, **_: Any) -> Any:
        return mtf.gradients([mtf.cwise(tf.exp, w, grad_function=lambda op, dy: mtf.reduce_sum(dy))], [w])

    def body(fn: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, w, n: fn(x=x, w=w, n=n)

    assert "tf_fn must be a function of tf.Tensors, not Tensor" in raised(body(no_function))
    assert "at least one operand is needed" in raised(body(no_operand))
    assert "gave 1 gradient for 2 operands" in raised(body(few_gradients))
    assert "it must have that operand's shape and dtype" in raised(body(bad_gradient))
