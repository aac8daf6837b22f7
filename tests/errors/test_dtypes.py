"""Element types that do not fit together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError

MESH = mtf.Mesh(mtf.Graph())
X = mtf.placeholder(MESH, "batch:4 hidden:8", name="x")
Z = mtf.placeholder(MESH, "batch:4 hidden:8", tf.int32, name="z")
B = mtf.placeholder(MESH, "batch:4 hidden:8", tf.bool, name="b")


@pytest.mark.parametrize(
    ("wrong", "parts"),
    [
        (lambda: X + Z, ["mtf.add: float32 and int32 meet; convert one with mtf.cast"]),
        (lambda: mtf.einsum([X, Z], output_shape="batch:4"), ["mtf.einsum: float32 and int32 meet"]),
        (lambda: mtf.where(mtf.greater(Z, 0), X, Z), ["float32 and int32 meet"]),
        (lambda: mtf.concat([X, Z], "batch"), ["float32 and int32 meet"]),
        (lambda: mtf.exp(Z), ["mtf.exp: a floating tensor is needed, not int32; convert with mtf.cast"]),
        (lambda: mtf.logical_and(Z, Z), ["a bool tensor is needed, not int32"]),
        (lambda: B + B, ["mtf.add: a number is needed, not bool; convert with mtf.cast, or use mtf.logical_and"]),
        (lambda: B - True, ["mtf.sub: a number is needed, not bool"]),
        (lambda: True - B, ["mtf.sub: a number is needed, not bool"]),
        (lambda: 2 * B, ["mtf.multiply: a number is needed, not bool"]),
        (lambda: B * B, ["mtf.multiply: a number is needed, not bool"]),
        (lambda: mtf.einsum([B, B]), ["mtf.einsum: a number is needed, not bool"]),
        (lambda: mtf.reduce_sum(B), ["mtf.reduce_sum: a number is needed, not bool", "use mtf.reduce_any"]),
        (lambda: mtf.reduce_max(B), ["mtf.reduce_max: a number is needed, not bool"]),
        (lambda: X & X, ["mtf.logical_and: a bool tensor is needed, not float32"]),
        (lambda: Z * 1.5, ["mtf.multiply: scalar 1.5 is no int32; convert the tensor with mtf.cast"]),
        (lambda: Z / Z, ["int32 cannot be divided exactly; use mtf.floordiv, or mtf.cast to a float"]),
        (lambda: mtf.reduce_mean(Z), ["use mtf.cast first"]),
        (lambda: mtf.gradients([Z], [X]), ["z [batch:4 hidden:8] int32 is not floating: it has no gradient"]),
        (lambda: mtf.dropout(Z, True, rate=0.5), ["mtf.dropout: dropout scales what it keeps, and cannot scale int32"]),
        (lambda: mtf.cast(Z, "flot32"), ["mtf.cast: not a dtype: 'flot32'; did you mean \"float32\"?"]),
        (lambda: mtf.one_hot(mtf.to_float(Z), mtf.Dimension("c", 3)), ["indices must be int32 or int64, not float32"]),
    ],
)
def test_the_message(read: Callable[..., str], wrong: Callable[[], Any], parts: list[str]) -> None:
    text = read(DtypeError, wrong)
    for part in parts:
        assert part in text
    assert "operands:\n" in text


def test_layers_of_integers(read: Callable[..., str]) -> None:
    """A kernel converted to integers would be zeros."""
    output, image = mtf.Dimension("d", 3), mtf.zeros(MESH, "height:4 width:4 channels:3", tf.uint8)
    with MESH.graph:
        dense = read(DtypeError, lambda: mtf.layers.dense(Z, [output]))
        conv2d = read(DtypeError, lambda: mtf.layers.conv2d(image, output))
    assert "mtf.layers.dense: a floating tensor is needed, not int32; convert it with mtf.cast" in dense
    assert "mtf.layers.conv2d: a floating tensor is needed, not uint8; convert it with mtf.cast" in conv2d


def test_a_variable_of_integers_without_initial_values(read: Callable[..., str]) -> None:
    text = read(DtypeError, lambda: mtf.get_variable(MESH, "n", "d:3", tf.int32))
    assert 'variable "n" of int32 needs an initializer, such as mtf.zeros' in text


def test_dtypes_of_specs(read: Callable[..., str]) -> None:
    assert "not a dtype: 'flot32'; did you mean \"float32\"?" in read(
        DtypeError, lambda: mtf.TensorSpec("a:3", "flot32")
    )
    assert "give one such as tf.float32" in read(DtypeError, lambda: mtf.zeros(MESH, "a:3", 77))  # type: ignore[arg-type]


def test_assigning_another_dtype(read: Callable[..., str]) -> None:
    v = mtf.get_variable(MESH, "v", "batch:4 hidden:8")
    assert 'variable "v" is float32; int32 cannot be assigned; convert it with mtf.cast' in read(
        DtypeError, lambda: mtf.assign_add(v, Z)
    )


def test_a_function_that_takes_every_dtype(read: Callable[..., str]) -> None:
    """It bears its own name, in messages too."""
    assert mtf.is_finite.__name__ == "is_finite"
    text = read(GraphError, lambda: mtf.is_finite(3.0))  # type: ignore[arg-type]
    assert "mtf.is_finite: the operand must be an mtf.Tensor, not float" in text


@pytest.mark.parametrize("draw", [mtf.random_normal, mtf.random_truncated_normal])
def test_random_numbers_that_are_not_floating(read: Callable[..., str], draw: Callable[..., mtf.Tensor]) -> None:
    """At the line that asks for them, not where the program is lowered."""
    text = read(DtypeError, lambda: draw(MESH, "batch:4", tf.int32))
    assert f"mtf.{draw.__name__}: normal numbers: dtype int32; use one of float16, bfloat16, float32, float64" in text


def test_uniform_numbers_of_a_type_that_has_none(read: Callable[..., str]) -> None:
    text = read(DtypeError, lambda: mtf.random_uniform(MESH, "batch:4", tf.bool))
    assert (
        "mtf.random_uniform: uniform numbers: dtype bool; use one of float16, bfloat16, float32, float64, int32" in text
    )
