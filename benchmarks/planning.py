"""Measures the time to build, plan and trace a graph of 5,000 operations, for 2 and for 64 cores.

    python -m benchmarks.planning

Building and planning are pure Python. Tracing makes the per-core TensorFlow function, once for any mesh. The first call
instantiates that function on every local core. It is timed only with `--first-calls`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import tensorflow as tf

import meshtf as mtf
from benchmarks.measuring.machine import machine
from meshtf.lowering.emit.cores import SeparateCores
from meshtf.lowering.lowering import Lowering

WIDTH = 64
MESHES = ("rows:2", "rows:8", "rows:64", "rows:2;cols:4", "rows:8;cols:8")
COLUMNS = ("operations", "build s", "plan s", "trace s", "sum s", "call s")
T = TypeVar("T")


def deep_perceptron(operations: int) -> tuple[mtf.Graph, mtf.Mesh, mtf.Tensor]:
    """A graph of about this many operations: layers of a residual perceptron and their gradients."""
    graph = mtf.Graph("deep_perceptron")
    mesh = mtf.Mesh(graph)
    batch, d_model, d_ff = mtf.Dimension("batch", 64), mtf.Dimension("d_model", WIDTH), mtf.Dimension("d_ff", 2 * WIDTH)
    with graph:
        x = mtf.placeholder(mesh, [batch, d_model], name="x")
        weights = []
        while len(graph.operations) * 3.3 < operations:
            with mtf.variable_scope(f"layer_{len(weights):04d}"):
                wi = mtf.get_variable(mesh, "wi", [d_model, d_ff], initializer=mtf.zeros)
                wo = mtf.get_variable(mesh, "wo", [d_ff, d_model], initializer=mtf.zeros)
            x += mtf.einsum([mtf.relu(mtf.einsum([x, wi], reduced_dims=[d_model])), wo], output_shape=x.shape)
            weights += [wi, wo]
        loss = mtf.reduce_mean(mtf.square(x))
        for w, grad in zip(weights, mtf.gradients(loss, weights), strict=True):
            assert grad is not None
            mtf.assign_sub(w, grad * 0.01)
    return graph, mesh, loss


def timed(fn: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    result = fn()
    return time.perf_counter() - began, result


def measure(operations: int, mesh_shape: str, calls: bool) -> list[float]:
    """The columns of a row. Call it in a fresh process, since objects of another graph would slow down building."""
    build, (graph, mesh, loss) = timed(lambda: deep_perceptron(operations))
    impl = mtf.SpmdMeshImpl(mesh_shape, "batch:rows;d_ff:cols" if "cols" in mesh_shape else "batch:rows")
    lower, lowering = timed(lambda: Lowering(graph, {mesh: impl}))
    plan, execution = timed(lambda: lowering.execution([loss]))
    cores = SeparateCores(execution.plan, impl, {})
    trace, _ = timed(lambda: cores.function)
    feed = tf.constant(np.ones([64, WIDTH], np.float32))
    call = timed(lambda: execution([feed]))[0] if calls else float("nan")
    return [len(graph.operations), build, lower + plan, trace, build + lower + plan + trace, call]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=5000)
    parser.add_argument("--first-calls", action="store_true", help="run each program once too, variables made included")
    parser.add_argument("--mesh", help="measure one mesh, in this process")
    arguments = parser.parse_args()
    if arguments.mesh:
        mtf.virtual_cpus(64)
        measure(200, "rows:2", False)  # warms up TensorFlow's first use
        print(*measure(arguments.operations, arguments.mesh, arguments.first_calls))
        return
    print(machine())
    print(f"{'mesh':16}" + "".join(f"{name:>12}" for name in COLUMNS))
    for mesh_shape in MESHES:
        command = [sys.executable, "-m", "benchmarks.planning", *sys.argv[1:], "--mesh", mesh_shape]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        values = [float(v) for v in output.split("\n")[-2].split()]
        print(f"{mesh_shape:16}{values[0]:12.0f}" + "".join(f"{v:12.2f}" for v in values[1:]))


if __name__ == "__main__":
    main()
