"""`x.eval()`: the values are those of the program, and the graph does not change."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import FeedError, GraphError, MeshtfError, UsageError
from meshtf.graph.graph import Graph
from meshtf.testing import build, interpret_graph

X = np.arange(12, dtype=np.float32).reshape(4, 3) - 5.5
SPECS = {"x": mtf.TensorSpec("batch:4 hidden:3")}


def body(x: mtf.Tensor) -> list[mtf.Tensor]:
    """Random bits of three kinds, a variable that is read after its update, an override of the layout, and a scan."""
    w = mtf.get_variable(x.mesh, "w", "hidden:3 out:5")
    noisy = mtf.dropout(x, True, rate=0.5) + mtf.random_normal(x.mesh, x.shape)
    h = mtf.with_layout(mtf.einsum([noisy, w], output_shape="batch:4 out:5"), "out:rows")
    _, (steps,) = mtf.scan(
        lambda carried, _: ([carried[0] + mtf.random_uniform(x.mesh, carried[0].shape)], [carried[0]]),
        [mtf.reduce_sum(h, reduced_dim="out")],
        [mtf.range(x.mesh, mtf.Dimension("time", 3), tf.int32)],
        mtf.Dimension("time", 3),
    )
    mtf.assign(w, 2.0 * w)
    return [noisy, h, steps, mtf.read_variable(w), w]


def described(graph: Graph) -> list[str]:
    return [f"{o.name} {o.outputs} {o.inputs}" for o in graph.every_operation()]


@pytest.mark.parametrize("seed", [0, 7])
def test_the_values_are_those_of_the_program_and_the_graph_stays_as_it_is(seed: int) -> None:
    graph, results = build(body, SPECS)
    before = described(graph), dict(graph.variables), graph.unique_name("x", mark_as_used=False)
    found = [y.eval(x=X, seed=seed) for y in results]
    assert (described(graph), dict(graph.variables), graph.unique_name("x", mark_as_used=False)) == before
    expected = interpret_graph(graph, results, {"x": X}, "rows:1", seed=seed)
    for own, other in zip(found, expected.results, strict=True):
        np.testing.assert_array_equal(own, other)
    np.testing.assert_array_equal(found[3], 2.0 * found[4])
    assert graph.variables["w"].outputs[0].eval(seed=seed).tolist() == found[4].tolist()  # no assignment outlasts it


def test_a_variable_is_read_after_the_assignments_in_loops_and_branches() -> None:
    def counted(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        total = mtf.get_variable(mesh, "total", [], initializer=mtf.zeros)

        def add() -> mtf.Tensor:
            return mtf.assign_add(total, mtf.ones(mesh, []))

        def body(turn: mtf.Tensor) -> list[mtf.Tensor]:
            add()
            return [turn + 1]

        mtf.while_loop(lambda turn: mtf.less(turn, 4), body, [mtf.zeros(mesh, [], tf.int32)])
        after_loop = mtf.read_variable(total)
        mtf.cond(mtf.less(after_loop, 9.0), add, lambda: mtf.read_variable(total))
        return [after_loop, 2.0 * mtf.read_variable(total), total]

    graph, results = build(counted, {})
    found = [float(y.eval()) for y in results]
    assert found == interpret_graph(graph, results, {}, "rows:1").results == [4.0, 10.0, 0.0]
    assert float(results[1].eval(variables={"total": np.float32(6)})) == 20.0


def test_an_evaluation_while_the_program_is_built_changes_no_result_and_has_its_seed() -> None:
    seen: list[np.ndarray] = []

    def program(x: mtf.Tensor, *, looks: bool) -> list[mtf.Tensor]:
        y = mtf.dropout(x, True, rate=0.5)
        if looks:
            seen.append(y.eval(x=X))
        return [y, y + mtf.random_uniform(x.mesh, x.shape)]

    found = []
    for fn in (lambda x: program(x, looks=True), lambda x: program(x, looks=False)):
        step = mtf.function(fn, mtf.PlanMeshImpl("rows:2", "batch:rows"), SPECS, seed=3, name="step")
        found.append(interpret_graph(step.graph, step.results, {"x": X}, "rows:2", "batch:rows", seed=3).results)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(seen[0], found[0][0])


def test_variables_may_be_given_and_are_padded_as_the_programs() -> None:
    with mtf.Graph() as graph:
        w = mtf.get_variable(mtf.Mesh(graph), "w", "hidden:3", initializer=mtf.ones)
        assert (w + 1.0).eval().tolist() == [2.0, 2.0, 2.0]
        assert (w + 1.0).eval(variables={"w": [1.0, 2.0, 3.0], "other": 1.0}).tolist() == [2.0, 3.0, 4.0]
        with pytest.raises(GraphError, match=r'variable "w" is \[hidden:3\]; the value given for it has shape \[2\]'):
            w.eval(variables={"w": [1.0, 2.0]})
        scale = mtf.get_variable(w.mesh, "scale", [])
        assert (w * scale).eval(variables={"scale": np.float32(5.0)}).tolist() == [5.0, 5.0, 5.0]


def test_a_tensor_from_outside_has_a_value_inside_a_block() -> None:
    seen: list[list[float]] = []

    with mtf.Graph() as graph:
        outside = mtf.constant(mtf.Mesh(graph), [1.0, 2.0], "n:2")
        doubled = 2.0 * outside

        def look(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            seen.append(doubled.eval().tolist())
            return carried, []

        mtf.scan(look, [outside], [], mtf.Dimension("time", 2))
    assert seen[0] == [2.0, 4.0]


def in_scan(x: mtf.Tensor) -> None:
    def step(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        parts[0].eval(x=X)
        return carried, parts

    mtf.scan(step, [mtf.reduce_sum(x)], [x], mtf.Dimension("batch", 4))


WRONG: dict[str, tuple[type[MeshtfError], str, Callable[[mtf.Tensor], object]]] = {
    "no input": (FeedError, r'input "x" \[batch:4 hidden:3\] float32 is missing', lambda x: (x + 1.0).eval()),
    "misspelt": (FeedError, r'no input "xs"; did you mean "x"', lambda x: (x + 1.0).eval(xs=X)),
    "no name": (FeedError, "inputs are given by name, .* and a value of ndarray has none", lambda x: x.eval(X)),  # type: ignore[arg-type]
    "wrong shape": (FeedError, r'input "x" must be \[batch:4 hidden:3\]', lambda x: x.eval(x=X[:2])),
    "in a scan": (GraphError, r"is inside .*: it has another value in each run there.*mtf\.print_tensor", in_scan),
    "seed": (UsageError, r"seed must be a whole number of 64 bits, and is 'a'", lambda x: x.eval(x=X, seed="a")),  # type: ignore[arg-type]
    "limit": (UsageError, r"limit must be a whole number of bytes, and is 1\.5", lambda x: x.eval(x=X, limit=1.5)),  # type: ignore[arg-type]
    "too large": (
        UsageError,
        r"needs 4\.0 GiB of tensors and variables, and the limit is 1\.0 GiB; the largest is .*n:1073741824\]"
        r" float32, 4\.0 GiB.*limit=5 << 30",
        lambda x: mtf.reduce_sum(mtf.zeros(x.mesh, "n:1073741824")).eval(),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_limits_are_said_with_the_users_line(name: str) -> None:
    kind, message, call = WRONG[name]
    with pytest.raises(kind, match=f"(?s){message}") as caught:
        build(lambda x: call(x), SPECS)
    assert f"{__file__}:" in str(caught.value)


def test_inside_a_function_of_tensorflow() -> None:
    seen: list[np.ndarray] = []

    @tf.function(autograph=False)
    def traced() -> tf.Tensor:
        with mtf.Graph() as graph:
            seen.append(mtf.constant(mtf.Mesh(graph), [1.0, 2.0], "n:2").eval())
        return tf.constant(0)

    traced()
    assert seen[0].tolist() == [1.0, 2.0]
