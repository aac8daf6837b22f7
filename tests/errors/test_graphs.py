"""Graphs built wrongly: other graphs' tensors, no graph, tensors taken for values, variables asked for twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, MeshtfError, ShapeError, UsageError

MESH = mtf.Mesh(mtf.Graph("first"))
X = mtf.placeholder(MESH, "batch:4 hidden:8", name="x")
OTHER = mtf.placeholder(mtf.Mesh(mtf.Graph("second")), "batch:4 hidden:8", name="other")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: X + OTHER,
        lambda: mtf.einsum([X, OTHER], output_shape="batch:4"),
        lambda: mtf.concat([X, OTHER], "batch"),
        lambda: mtf.cwise(tf.add, [X, OTHER]),
    ],
)
def test_tensors_of_two_graphs(read: Callable[..., str], wrong: Callable[[], Any]) -> None:
    text = read(GraphError, wrong)
    assert "x [batch:4 hidden:8] float32 and other [batch:4 hidden:8] float32 belong to different graphs" in text
    assert "as inputs, or in variables of a shared store" in text


def test_a_result_of_another_graph(read: Callable[..., str]) -> None:
    mesh = mtf.SpmdMeshImpl("rows:2", "")
    text = read(GraphError, lambda: mtf.function(lambda: X, mesh, name="train"))
    assert 'x [batch:4 hidden:8] float32 belongs to another graph than program "train"' in text


def test_no_graph(read: Callable[..., str]) -> None:
    def scope() -> None:
        with mtf.variable_scope("layer"):  # here
            pass

    for wrong in (lambda: mtf.current_graph(), scope):
        text = read(GraphError, wrong)
        assert "no graph is being built here; call this inside the body of an mtf.function, or inside `with gra" in text


def test_a_tensor_is_no_value(read: Callable[..., str]) -> None:
    def branch() -> int:
        if X > 0.0:  # here
            return 1
        return 0

    assert "has no truth value while the graph is built; use mtf.where" in read(UsageError, branch)
    assert "greater" in read(UsageError, branch)
    assert "cannot be iterated; use mtf.unstack" in read(UsageError, lambda: list(X))
    assert "cannot be indexed by position; name the dimension" in read(UsageError, lambda: X[0])
    assert "has no value while the graph is built; to see it, return it" in read(UsageError, lambda: np.asarray(X))
    assert "use mtf's functions, or mtf.slicewise" in read(UsageError, lambda: tf.exp(X))


@pytest.mark.parametrize("value", [np.ones([4, 8], np.float32), tf.ones([4, 8]), "text", None, [1.0]])
def test_wrong_operands(read: Callable[..., str], value: Any) -> None:
    for wrong in (lambda: X + value, lambda: mtf.einsum([X, value], output_shape="batch:4")):
        text = read(GraphError, wrong)
        assert f"the operand must be an mtf.Tensor, not {type(value).__name__}" in text
        assert "bring values in as inputs of mtf.function, or with mtf.constant or mtf.import_tf_tensor" in text
    assert "mtf.exp: the operand must be an mtf.Tensor" in read(GraphError, lambda: mtf.exp(value))


def test_operands_of_operations_on_many(read: Callable[..., str]) -> None:
    assert "must be an mtf.Tensor, not int" in read(GraphError, lambda: mtf.einsum(3))  # type: ignore[arg-type]
    assert "give at least one" in read(ShapeError, lambda: mtf.einsum([]))
    assert "give at least one" in read(ShapeError, lambda: mtf.add_n([]))
    assert "must be an mtf.Tensor, not int" in read(GraphError, lambda: mtf.gradients([X], [3]))  # type: ignore[list-item]
    assert "is not a variable; give what mtf.get_variable returned" in read(GraphError, lambda: mtf.assign(X, X))


def test_a_variable_asked_for_twice(read: Callable[..., str]) -> None:
    def twice() -> None:
        mtf.get_variable(MESH, "weights", "d:3")
        mtf.get_variable(MESH, "weights", "d:4")  # here

    text = read(GraphError, twice)
    first = twice.__code__.co_firstlineno + 1
    assert f'variable "weights" exists with [d:3] float32, made at {__file__}:{first} in twice' in text
    assert "it is asked for again with [d:4] float32: give one of them another name, or open a scope" in text
    again = read(GraphError, lambda: mtf.get_variable(MESH, "weights", "d:3", tf.bfloat16))
    assert "it is asked for again with [d:3] bfloat16" in again
    assert mtf.get_variable(MESH, "weights", "d:3").name == "weights"


def test_assigning_another_shape(read: Callable[..., str]) -> None:
    v = mtf.get_variable(MESH, "v", "d:3")
    text = read(ShapeError, lambda: mtf.assign(v, X))
    assert (
        'variable "v" is [d:3]; [batch:4 hidden:8] cannot be assigned; its dimensions must be the variable\'s' in text
    )


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = mtf.reduce_summ
    assert str(caught.value) == "module 'meshtf' has no attribute 'reduce_summ'; did you mean \"reduce_sum\"?"
    with pytest.raises(AttributeError, match=r"module 'meshtf' has no attribute 'zzz'$"):
        _ = mtf.zzz


def test_autograph_leaves_errors_as_they_are() -> None:
    """It would make a StagingError of those that it does not know."""
    for kind in MeshtfError.__subclasses__():

        @tf.function
        def wrong(x: tf.Tensor, kind: type[MeshtfError] = kind) -> tf.Tensor:
            if x > 0:
                x = -x
            raise kind("as it was")

        with pytest.raises(kind, match=r"^as it was$"):
            wrong(tf.constant(1))
