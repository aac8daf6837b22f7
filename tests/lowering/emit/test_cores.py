"""Cores between which TensorFlow's collectives are, and where a program communicates: in memory, or by these."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.emit.cores import SeparateCores
from tests.lowering.emitted import core_functions, graph_of, nodes_in, program_of, times_traced

MESH, LAYOUT = "a:4;b:2", "rows:a;cols:b"
ROWS, COLS = mtf.Dimension("rows", 8), mtf.Dimension("cols", 4)


def sums(x: mtf.Tensor) -> list[mtf.Tensor]:
    """Over an axis that crosses processes, over one that does not, and in a loop."""

    def turn(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        return [carried[0] + mtf.reduce_max(carried[0], reduced_dim=ROWS)], []

    (turned,), _ = mtf.scan(turn, [x], [], mtf.Dimension("turns", 2))
    return [mtf.reduce_sum(x, reduced_dim=ROWS), mtf.reduce_sum(x, reduced_dim=COLS), turned]


def summed(**options: Any) -> tuple[mtf.Function, list[np.ndarray]]:
    step = mtf.function(
        sums, mtf.SpmdMeshImpl(MESH, LAYOUT, bucket_bytes=0, **options), {"x": mtf.TensorSpec([ROWS, COLS])}
    )
    return step, [y.numpy() for y in step(x=np.arange(32, dtype=np.float32).reshape(8, 4))]


def communicates(graph: tf.Graph) -> int:
    """How many of the runtime's collectives stand in it, loops and branches included."""
    return sum(node.op.startswith("Collective") for node in nodes_in(graph))


def test_in_memory_within_a_process_and_once_between_processes() -> None:
    alone, expected = summed()
    apart, by_core = summed(share_memory=False)
    assert communicates(graph_of(alone)) == 0
    assert isinstance(program_of(apart).cores, SeparateCores)
    (core_function,) = core_functions(apart)
    assert communicates(core_function.graph) > 0
    over_two, results = summed(num_processes=2)
    for found in (by_core, results):
        for own, value in zip(found, expected, strict=True):
            np.testing.assert_array_equal(own, value)
    assert not any(communicates(function.graph) for function in core_functions(over_two))
    # Each of two processes, for each of two columns: an exchange and a gather, for the sum and for the largest; and a
    # gather of each of two results, so that all processes have them whole.
    assert communicates(graph_of(over_two)) == 2 * 2 * (2 * 2 + 2)


def test_each_core_calls_the_one_function_with_what_is_its_own() -> None:
    """Also in a function of the user's, which stays one trace."""

    def step(x: mtf.Tensor) -> mtf.Tensor:  # [rows, cols]
        weights = mtf.get_variable(x.mesh, "weights", [ROWS, COLS], initializer=mtf.ones)
        loss = mtf.reduce_mean(mtf.square(weights - x))
        mtf.optimize.SgdOptimizer(0.5 * ROWS.size * COLS.size).minimize(loss)  # to x at once
        return loss

    x, traces = np.arange(32, dtype=np.float32).reshape(8, 4), []
    function = mtf.function(
        step, mtf.SpmdMeshImpl(MESH, LAYOUT, share_memory=False), {"x": mtf.TensorSpec([ROWS, COLS])}
    )

    @tf.function(autograph=False)
    def twice(x: tf.Tensor) -> list[tf.Tensor]:
        traces.append(x)
        return [function(x), function(x)]

    assert [float(y) for y in twice(x)] == [np.mean(np.square(1 - x)), 0]
    assert [float(y) for y in twice(x)] == [0, 0]
    np.testing.assert_array_equal(function.variables["weights"], x)
    assert len(traces) == 1
    assert times_traced(program_of(function)) == {1}
    (core_function,) = core_functions(function)
    graph, name = graph_of(function), core_function.function_def.signature.name  # type: ignore[attr-defined]
    calls = [o for o in graph.get_operations() if "f" in o.node_def.attr and o.get_attr("f").name == name]
    held = [[t for t in call.inputs if t.dtype == tf.resource] for call in calls]
    assert len(calls) == 8
    assert len({own[-1].ref() for own in held}) == 8  # each has its slice
    assert core_function.function_def.attr["_noinline"].b  # type: ignore[attr-defined]
