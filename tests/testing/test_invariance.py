"""`mtf.testing`: what users test their own programs with."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import FeedError
from meshtf.testing import assert_layout_invariant, interpret, interpret_graph, legal_layouts, plan, shapes_of

BATCH, HIDDEN, CLASSES = mtf.Dimension("batch", 8), mtf.Dimension("hidden", 12), mtf.Dimension("classes", 4)
X = np.random.default_rng(0).normal(size=[8, 12]).astype(np.float32)


def classifier(x: mtf.Tensor, mesh: mtf.Mesh) -> dict[str, mtf.Tensor]:
    w = mtf.get_variable(mesh, "w", [HIDDEN, CLASSES])
    mtf.assign_sub(w, 0.1 * w)
    logits = mtf.einsum([mtf.dropout(x, True, rate=0.2), w], [BATCH, CLASSES])
    return {"log_probabilities": mtf.log_softmax(logits, CLASSES), "best": mtf.argmax(logits, CLASSES)}


def wrong(x: mtf.Tensor) -> mtf.Tensor:
    """What each core has is divided by how much that is."""
    return mtf.slicewise(lambda s: s / s.shape[0], [x], splittable_dims=[BATCH])


def test_a_program_that_does_not_depend_on_its_layout() -> None:
    assert_layout_invariant(classifier, {"x": ([BATCH, HIDDEN], X)}, mesh_shape="rows:2;cols:2")


def test_given_layouts_and_devices() -> None:
    layouts = ["batch:rows", "hidden:cols+rows", "batch:rows;classes:cols"]
    devices = ["CPU:3", "CPU:1", "CPU:0", "CPU:2"]
    assert_layout_invariant(classifier, {"x": ([BATCH, HIDDEN], X)}, layouts, "rows:2;cols:2", devices=devices)


def test_a_program_that_depends_on_its_layout_is_caught() -> None:
    inputs = {"x": ([BATCH, HIDDEN], X)}
    assert_layout_invariant(wrong, inputs, ["hidden:rows"], "rows:2", with_gradients=False)
    with pytest.raises(AssertionError, match=r'result 0 on mesh \[rows:2\] under layout "batch:rows"'):
        assert_layout_invariant(wrong, inputs, ["batch:rows"], "rows:2", with_gradients=False)


def test_a_gradient_that_depends_on_the_layout_is_caught() -> None:
    def fn(x: mtf.Tensor) -> mtf.Tensor:
        def grad(operation: mtf.Operation, dy: mtf.Tensor) -> list[mtf.Tensor]:
            return [wrong(dy)]

        return mtf.slicewise(tf.identity, [x], splittable_dims=[BATCH], grad_function=grad)

    with pytest.raises(AssertionError, match="gradient by x"):
        assert_layout_invariant(fn, {"x": ([BATCH, HIDDEN], X)}, ["batch:rows"], "rows:2")


def test_the_number_of_terms_can_be_given() -> None:
    with pytest.raises(AssertionError, match="result 0"):
        assert_layout_invariant(
            lambda x: mtf.reduce_sum(mtf.square(x)) * 1e3, {"x": ([BATCH, HIDDEN], X)}, ["batch:rows;hidden:cols"],
            "rows:2;cols:4", terms=0, with_gradients=False,
        )  # fmt: skip


def test_interpret_on_64_cores() -> None:
    """No devices are needed; results keep their structure, and variables are as the program left them."""
    x = np.ones([16, 8], np.float32)

    def fn(x: mtf.Tensor, mesh: mtf.Mesh) -> tuple[dict[str, mtf.Tensor], int]:
        total = mtf.get_variable(mesh, "total", [], initializer=np.float32(2.0))
        mtf.assign_add(total, mtf.reduce_sum(x))
        return {"squares": mtf.square(x) * 3.0, "total": mtf.read_variable(total)}, 7

    done = interpret(fn, {"x": ("a:16 b:8", x)}, "rows:8;cols:8", "a:rows;b:cols")
    (arrays, seven) = done.results
    np.testing.assert_array_equal(arrays["squares"], 3 * x)
    assert (seven, float(arrays["total"]), float(done.variables["total"])) == (7, 130.0, 130.0)
    assert [c.step.kind for c in done.plan.collectives] == ["all_reduce"]


def test_arrays_for_a_graph_are_checked_as_those_of_a_program() -> None:
    graph, y = mtf.testing.build(lambda x: x * 2.0, {"x": mtf.TensorSpec("a:2")})
    for feeds, words in (
        ({"x": np.ones([2])}, "has dtype float64; convert it"),
        ({"x": np.ones([3], np.float32)}, r"has shape \[3\]"),
        ({"X": np.ones([2], np.float32)}, 'no input "X"; the inputs are: x'),
    ):
        with pytest.raises(FeedError, match=words):
            interpret_graph(graph, [y], feeds, "rows:2")
    assert interpret_graph(graph, [y], {"x": [1.0, 2.0]}, "rows:2").results[0].tolist() == [2.0, 4.0]


def test_plan_runs_nothing() -> None:
    spec = mtf.TensorSpec([("a", 1 << 30), ("b", 1 << 20)])
    found = plan(lambda x: mtf.reduce_sum(x), {"x": spec}, "rows:512;cols:4", "a:rows;b:cols")
    assert [c.step.axes for c in found.collectives] == [("rows", "cols")]


def test_legal_layouts() -> None:
    found = [dict(rules.rules) for rules in legal_layouts(["a:4 b:6", "b:6 c:3"], "rows:2;cols:2")]
    assert {} in found
    assert {"a": ("rows",), "b": ("cols",)} in found
    assert {"a": ("rows", "cols")} in found
    assert {"a": ("cols", "rows")} in found
    assert not any("c" in rules for rules in found), "3 does not divide"
    assert not any(rules.get("b", ()) and set(rules.get("a", ())) & set(rules["b"]) for rules in found)
    assert len(found) == 1 + 2 + 2 + 2 + 2


def test_some_of_the_legal_layouts() -> None:
    every = legal_layouts(["a:8 b:8 c:8"], "x:2;y:2;z:2")
    some = legal_layouts(["a:8 b:8 c:8"], "x:2;y:2;z:2", limit=5)
    assert len(some) == 5
    assert (some[0], some[-1]) == (every[0], every[-1])
    assert some[0].rules == ()


def test_some_of_more_layouts_than_can_be_listed() -> None:
    """Of 12 arrays with a dimension of their own each there are 5 ** 12."""
    shapes = [mtf.Shape([(f"d{i}", 4)]) for i in range(12)]
    some = legal_layouts(shapes, "x:2;y:2", limit=8)
    assert len(set(some)) == 8
    assert some[0].rules == ()
    assert some == legal_layouts(shapes, "x:2;y:2", limit=8)


def test_shapes_of_a_graph() -> None:
    graph, _ = mtf.testing.build(lambda x: mtf.reduce_sum(x, reduced_dim="a"), {"x": mtf.TensorSpec("a:2 b:3")})
    assert [str(shape) for shape in shapes_of(graph)] == ["a:2 b:3", "b:3"]
