"""Where a program communicates: in memory, between processes, or core by core."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.emit.emission import EmittedProgram

ROWS, COLS = mtf.Dimension("rows", 8), mtf.Dimension("cols", 4)


def sums(x: mtf.Tensor) -> list[mtf.Tensor]:
    """Over an axis that crosses processes, over one that does not, and in a loop."""

    def turn(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        return [carried[0] + mtf.reduce_max(carried[0], reduced_dim=ROWS)], []

    (turned,), _ = mtf.scan(turn, [x], [], mtf.Dimension("turns", 2))
    return [mtf.reduce_sum(x, reduced_dim=ROWS), mtf.reduce_sum(x, reduced_dim=COLS), turned]


def program_of(**options: Any) -> tuple[EmittedProgram, list[np.ndarray]]:
    mesh_impl = mtf.SpmdMeshImpl("a:4;b:2", "rows:a;cols:b", bucket_bytes=0, **options)
    step = mtf.function(sums, mesh_impl, {"x": mtf.TensorSpec([ROWS, COLS])})
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    results = [y.numpy() for y in step(x=x)]
    program = step.lowering.execution(step._fetches).program
    assert isinstance(program, EmittedProgram)
    return program, results


def communicates(function: tf.types.experimental.ConcreteFunction) -> int:
    """How many of the runtime's collectives stand in it, loops and branches included."""
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    return sum(node.op.startswith("Collective") for node in nodes)


def test_in_memory_within_a_process_and_once_between_processes() -> None:
    alone, expected = program_of()
    apart, by_core = program_of(share_memory=False)
    assert not any(map(communicates, alone.core_functions))
    assert sum(map(communicates, apart.core_functions)) > 0
    over_two, results = program_of(num_processes=2)
    for found in (by_core, results):
        for own, value in zip(found, expected, strict=True):
            np.testing.assert_array_equal(own, value)
    assert not any(map(communicates, over_two.core_functions))
    # Each of two processes, for each of two columns: an exchange and a gather, for the sum and for the largest; and a
    # gather of each of two results, so that all processes have them whole.
    assert communicates(over_two._on_all_cores[False].function) == 2 * 2 * (2 * 2 + 2)
