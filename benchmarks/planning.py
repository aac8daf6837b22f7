"""Time to build, plan and trace a graph of 5,000 operations, for 2 and for 64 cores.

    python -m benchmarks.planning

Building and planning are pure Python; tracing makes the per-core TensorFlow function, once whatever the mesh. The first
call, which instantiates that function on every local core, is shown beside them for the meshes that this process has.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import meshtf as mtf
from benchmarks.machine import machine
from meshtf.lowering.lowering import Lowering

WIDTH = 64


def deep_perceptron(operations: int) -> tuple[mtf.Graph, mtf.Mesh, mtf.Tensor]:
    """A graph of about so many operations: layers of a residual perceptron and their gradients."""
    graph = mtf.Graph("deep_perceptron")
    mesh = mtf.Mesh(graph)
    batch, d_model, d_ff = mtf.Dimension("batch", 64), mtf.Dimension("d_model", WIDTH), mtf.Dimension("d_ff", 2 * WIDTH)
    with graph:
        x = mtf.placeholder(mesh, [batch, d_model], name="x")
        weights = []
        while len(graph.operations) * 3.6 < operations:
            with mtf.variable_scope(f"layer_{len(weights):04d}"):
                wi = mtf.get_variable(mesh, "wi", [d_model, d_ff])
                wo = mtf.get_variable(mesh, "wo", [d_ff, d_model])
            x += mtf.einsum([mtf.relu(mtf.einsum([x, wi], reduced_dims=[d_model])), wo], output_shape=x.shape)
            weights += [wi, wo]
        loss = mtf.reduce_mean(mtf.square(x))
        for w, grad in zip(weights, mtf.gradients(loss, weights), strict=True):
            mtf.assign_sub(w, grad * 0.01)
    return graph, mesh, loss


def timed(fn: Callable[[], object]) -> tuple[float, object]:
    began = time.perf_counter()
    result = fn()
    return time.perf_counter() - began, result


def row(operations: int, mesh_shape: str, calls: bool) -> list[str]:
    build, (graph, mesh, loss) = timed(lambda: deep_perceptron(operations))  # type: ignore[misc]
    impl = mtf.SpmdMeshImpl(mesh_shape, "batch:rows;d_ff:cols")
    plan, lowering = timed(lambda: Lowering(graph, {mesh: impl}))
    assert isinstance(lowering, Lowering)
    planned, execution = timed(lambda: lowering.execution([loss]))
    variables, program = timed(lambda: execution.program)  # type: ignore[attr-defined]
    trace, _ = timed(program.core_function.get_concrete_function)  # type: ignore[attr-defined]
    feed = tf.constant(np.ones([64, WIDTH], np.float32))
    first = timed(lambda: execution([feed]))[0] if calls else None  # type: ignore[operator]
    columns = [len(graph.operations), build, plan + planned, trace, build + plan + planned + trace]
    return [
        f"{mesh_shape:16}",
        *(f"{c:>10.2f}" if isinstance(c, float) else f"{c:>10}" for c in columns),
        f"{variables:>10.2f}",
        f"{first:>10.2f}" if first is not None else f"{'':>10}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=5000)
    parser.add_argument("--first-calls", action="store_true", help="run each program once too")
    arguments = parser.parse_args()
    mtf.virtual_cpus(64)
    print(machine())
    names = ["operations", "build s", "plan s", "trace s", "sum s", "init s", "call s"]
    print(f"{'mesh':16}" + "".join(f"{n:>10} " for n in names))
    row(200, "rows:2;cols:1", True)  # what TensorFlow loads at first use is not the graph's cost
    for mesh_shape in ("rows:2;cols:1", "rows:2;cols:4", "rows:8;cols:8"):
        print(" ".join(row(arguments.operations, mesh_shape, arguments.first_calls)))


if __name__ == "__main__":
    main()
