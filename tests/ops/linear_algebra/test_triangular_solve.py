"""Triangular systems against TensorFlow, under layouts that split batch, matrix and right sides."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from tests.ops.complex_gradients import check, complex_array

RNG = np.random.default_rng(0)


OTHERS = ["i:cols;j:rows", "j:cols+rows", "k:rows;batch:cols"]


@pytest.mark.parametrize(
    ("lower", "adjoint", "layouts", "order"),
    [
        (True, False, OTHERS, 1),
        (False, True, OTHERS, 1),
        (True, True, ["batch:rows"], 2),
        (False, False, ["batch:rows"], 2),
        *(
            pytest.param(lower, adjoint, *more, marks=pytest.mark.long)
            for lower, adjoint in itertools.product([True, False], repeat=2)
            for more in ((OTHERS, 1), (["batch:rows"], 2))
        ),
    ],
)
def test_triangular_solve(lower: bool, adjoint: bool, layouts: list[str], order: int) -> None:
    given = "j" if adjoint else "i"
    inputs = {
        "a": ("batch:4 i:4 j:4", complex_array(RNG, 4, 4, 4) + 3 * np.eye(4)),
        "b": (f"{given}:4 k:6 batch:4", complex_array(RNG, 4, 6, 4)),
    }

    def reference(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        y = tf.linalg.triangular_solve(a, tf.transpose(b, [2, 0, 1]), lower, adjoint)
        return tf.transpose(y, [1, 2, 0])

    check(
        lambda a, b: mtf.triangular_solve(a, b, "i", "j", lower=lower, adjoint=adjoint),
        reference,
        inputs,
        layouts,
        order=order,
    )


def test_one_right_side_for_a_batch_of_systems() -> None:
    inputs = {
        "a": ("i:4 batch:4 j:4", RNG.standard_normal((4, 4, 4)) + 3 * np.eye(4)[:, None]),
        "b": ("i:4", RNG.standard_normal(4)),
    }

    def reference(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        sides = tf.broadcast_to(b[None, :, None], [4, 4, 1])
        return tf.linalg.triangular_solve(tf.transpose(a, [1, 0, 2]), sides)[..., 0]

    check(lambda a, b: mtf.triangular_solve(a, b, "i", "j"), reference, inputs, ["", "batch:rows", "i:rows"], order=1)


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x, b = mtf.placeholder(mesh, "i:4 j:4"), mtf.placeholder(mesh, "j:4 k:2")
    before = len(mesh.graph.operations)
    with pytest.raises(ShapeError, match=r'no dimension "i"'):
        mtf.triangular_solve(x, b, "i", "j")
    with pytest.raises(ShapeError, match=r'has dimension "j", which the solution'):
        mtf.triangular_solve(x, x, "i", "j")
    assert len(mesh.graph.operations) == before
