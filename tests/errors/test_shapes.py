"""Sizes that disagree and dimensions that are not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError

GRAPH = mtf.Graph()
MESH = mtf.Mesh(GRAPH)
X = mtf.placeholder(MESH, "batch:4 hidden:8", name="x")
Y = mtf.placeholder(MESH, "batch:4 hidden:6", name="y")
B = mtf.cast(mtf.placeholder(MESH, "batch:4", name="b"), "bool")
HIDEN = mtf.Dimension("hiden", 8)
CLASH = 'dimension "hidden" has size 8 in one operand and 6 in another'
NEAREST = 'no dimension "hiden" in [batch:4 hidden:8]; did you mean "hidden"?'

Wrong = Callable[[], Any]

MISTAKES: list[tuple[Wrong, list[str]]] = [
    # Sizes that disagree.
    (lambda: X + Y, ["mtf.add: ", CLASH, "rename one of them (mtf.rename_dimension) or make the sizes equal"]),
    (lambda: mtf.maximum(X, Y), ["mtf.maximum: ", CLASH]),
    (lambda: mtf.where(B, X, Y), ["mtf.where: ", CLASH, "b"]),
    (lambda: mtf.einsum([X, Y], output_shape="batch:4"), ["mtf.einsum: ", CLASH]),
    (lambda: mtf.einsum([X, X], output_shape="batch:5"), ['dimension "batch" has size 4 in [batch:4 hidden:8], not 5']),
    (lambda: mtf.reduce_sum(X, reduced_dim=mtf.Dimension("hidden", 7)), ["has size 8 in [batch:4 hidden:8], not 7"]),
    (lambda: mtf.concat([X, Y], "batch"), ["mtf.concat: ", 'operand 1 has "hidden" of size 6, and operand 0 of']),
    (lambda: mtf.stack([X, Y], "copies"), ["mtf.stack: ", 'operand 1 has "hidden" of size 6']),
    (lambda: mtf.reshape(X, "all:31"), ["[batch:4 hidden:8] has 32 elements and [all:31] has 31", "keeps them all"]),
    (lambda: mtf.gradients([X], [X], [Y]), ["the gradient of x", "must have its shape and dtype, and is y"]),
    (
        lambda: mtf.replace_dimensions(X, mtf.Dimension("hidden", 8), [("a", 4), ("b", 3)]),
        ["[hidden:8] has 8 elements and [a:4 b:3] has 12"],
    ),
    # Unknown dimensions.
    (lambda: mtf.reduce_sum(X, reduced_dim=HIDEN), ["mtf.reduce_sum: " + NEAREST]),
    (lambda: mtf.reduce_max(X, reduced_dim="hiden"), ["mtf.reduce_max: " + NEAREST]),
    (lambda: mtf.reduce_mean(X, output_shape="bath:4"), ['no dimension "bath" in', 'did you mean "batch"?']),
    (lambda: mtf.rename_dimension(X, "hiden", "d"), ["mtf.rename_dimension: " + NEAREST]),
    (lambda: mtf.rename_dimension(X, "hidden", "batch"), ['has a dimension "batch" already; choose another name']),
    (lambda: mtf.replace_dimensions(X, HIDEN, [("a", 4), ("b", 2)]), ["mtf.replace_dimensions: " + NEAREST]),
    (lambda: mtf.slice(X, 0, 4, "hiden"), ["mtf.slice: " + NEAREST]),
    (lambda: mtf.slice(X, 6, 4, "hidden"), ['begin 6 and size 4 lead out of dimension "hidden" of size 8']),
    (
        lambda: mtf.einsum([X, X], output_shape="bach:4"),
        ['output dimension "bach" is in no operand; did you mean "batch"?', "mtf.broadcast"],
    ),
    (lambda: mtf.einsum([X, X], reduced_dims=[HIDEN]), [NEAREST]),
    (lambda: mtf.matmul(X, X, output_shape="bach:4"), ['output dimension "bach" is in no operand; did you mean']),
    (lambda: mtf.transpose(X, "hidden:8 bath:4"), ['no dimension "bath" in', 'did you mean "batch"?']),
    (lambda: mtf.broadcast(X, "hidden:8 bath:4"), ['lacks dimension "batch"', 'did you mean "bath"?']),
    (lambda: mtf.softmax(X, "hiden"), ["mtf.softmax: " + NEAREST]),
    (lambda: mtf.concat([X, Y], "hiden"), ["mtf.concat: " + NEAREST]),
    # Wrong things given.
    (lambda: mtf.reduce_sum(X, output_shape=[], reduced_dim="hidden"), ["give output_shape or reduced_dim, not both"]),
    (lambda: mtf.reshape(X, 32), ["not a shape: 32; give an mtf.Shape"]),
    (lambda: mtf.reshape(X, None), ["a shape is needed here, and None was given"]),
    (lambda: mtf.dropout(X, True, rate=0.5, noise_shape="bach:4"), ["mtf.dropout: ", 'did you mean "batch"?']),
    (lambda: mtf.layers.dense(X, "d_ff"), ['a new dimension needs its size: "d_ff:size"\n    d_ff\n    ^^^^']),
    (lambda: mtf.reshape(X, ["all"]), ['no operand has dimension "all"', 'a new dimension needs its size: "all:size"']),
    (lambda: mtf.reshape(X, "all:x"), ["not of the form name:size, or a name alone:\n    all:x\n    ^^^^^"]),
    (lambda: mtf.reshape(X, "a:4 a:8"), ['dimension "a" stands twice in [a:4 a:8]']),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "parts"), MISTAKES)
def test_the_message_of_an_operation(wrong: Wrong, parts: list[str]) -> None:
    """What was wrong, the operands with their named shapes, and this file's line."""
    with pytest.raises(mtf.errors.MeshtfError) as caught:
        wrong()
    text = str(caught.value)
    for part in parts:
        assert part in text, text
    assert "\n    x [batch:4 hidden:8] float32" in text
    assert text.count(f"\n  at {__file__}:") == 1
    assert wrong.__code__.co_firstlineno <= int(text.split(f"{__file__}:")[-1].split(" ")[0])
    assert text.endswith("in <lambda>")


def test_a_refused_operation_leaves_no_trace() -> None:
    before = len(GRAPH.operations)
    for wrong, _ in MISTAKES[:6]:
        with pytest.raises(ShapeError):
            wrong()
    assert len(GRAPH.operations) == before


def test_dimensions_and_shapes(read: Callable[..., str]) -> None:
    assert "the size of dimension 'a' must be an integer, not '3'" in read(ShapeError, lambda: mtf.Dimension("a", "3"))  # type: ignore[arg-type]
    assert "must not be negative, and is -3" in read(ShapeError, lambda: mtf.Dimension("a", -3))
    assert "a word without spaces" in read(ShapeError, lambda: mtf.Dimension("a b", 3))
    assert "stands twice in [a:2 a:3]" in read(ShapeError, lambda: mtf.Shape([("a", 2), ("a", 3)]))
    assert NEAREST in read(ShapeError, lambda: X.shape.get_dim_by_name("hiden"))
    assert NEAREST in read(ShapeError, lambda: X.shape - HIDEN)
    assert "not a shape: 3" in read(ShapeError, lambda: mtf.TensorSpec(3))  # type: ignore[arg-type]


def test_arrays_that_do_not_fit_their_names(read: Callable[..., str]) -> None:
    text = read(ShapeError, lambda: mtf.import_tf_tensor(MESH, np.ones([3, 4]), "a:3 b:5"))
    assert "an array of shape [3, 4] cannot be [a:3 b:5]" in text
    text = read(GraphError, lambda: mtf.constant("mesh", 1.0, "a:3"))  # type: ignore[arg-type]
    assert "the mesh was left out, and no graph is being built here that would have one" in text


def test_a_mistake_inside_a_layer_names_the_users_line(read: Callable[..., str]) -> None:
    def model() -> mtf.Tensor:
        with GRAPH:
            return mtf.layers.dense(X, [mtf.Dimension("batch", 5)], name="out")  # here

    text = read(ShapeError, model)
    assert "batch" in text


@pytest.mark.parametrize("draw", [mtf.random_uniform, mtf.random_normal, mtf.random_truncated_normal])
def test_random_numbers_of_no_shape(read: Callable[..., str], draw: Callable[..., mtf.Tensor]) -> None:
    text = read(ShapeError, lambda: draw(MESH, None))
    assert f'mtf.{draw.__name__}: a shape is needed here, and None was given; for a scalar give [] or ""' in text
