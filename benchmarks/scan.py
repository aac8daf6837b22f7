"""Compares a scan over 48 layers with unrolled layers: time to build, to lower, and to the end of the first call.

    python -m benchmarks.scan

Each row is a training step (values, gradients, an SGD update) in a separate process. A small program runs first, so
that the cost of TensorFlow's first use does not count. The sum is of building, lowering and the first call, without the
variables' initial values, which are a separate program.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

import meshtf as mtf
from benchmarks.measuring.machine import machine

BATCH, D_MODEL, D_FF = mtf.Dimension("batch", 32), mtf.Dimension("d_model", 64), mtf.Dimension("d_ff", 128)


def layer(x: mtf.Tensor, wi: mtf.Tensor, wo: mtf.Tensor, scale: mtf.Tensor) -> mtf.Tensor:
    """A residual perceptron over normalized inputs."""
    size = mtf.rsqrt(mtf.reduce_mean(mtf.square(x), reduced_dim=D_MODEL) + 1e-6)
    h = mtf.relu(mtf.einsum([x * size * scale, wi], reduced_dims=[D_MODEL]))
    return x + mtf.einsum([h, wo], output_shape=x.shape)


def training_step(layers: mtf.Dimension, is_scan: bool) -> Callable[..., mtf.Tensor]:
    def step(x: mtf.Tensor, mesh: mtf.Mesh) -> mtf.Tensor:
        shapes = {"wi": [D_MODEL, D_FF], "wo": [D_FF, D_MODEL], "scale": [D_MODEL]}
        if is_scan:
            stacked = [mtf.get_variable(mesh, name, [layers, *dims]) for name, dims in shapes.items()]
            (y,), _ = mtf.scan(lambda c, p: ([layer(c[0], *p)], []), x, stacked, layers)
        else:
            y = x
            for i in range(layers.size):
                with mtf.variable_scope(f"layer_{i:03d}"):
                    y = layer(y, *(mtf.get_variable(mesh, name, dims) for name, dims in shapes.items()))
        loss = mtf.reduce_mean(mtf.square(y))
        mtf.optimize.SgdOptimizer(0.1).minimize(loss)
        return loss

    return step


def measured(how: str, layers: int, mesh: str) -> list[float]:
    """The seconds to build and plan, for the variables' initial values, for the first call, and per step after it."""
    x = np.ones([BATCH.size, D_MODEL.size], np.float32)
    specs = {"x": mtf.TensorSpec([BATCH, D_MODEL])}
    times = []
    for count in (2, layers):  # a small one first
        began = time.perf_counter()
        step = mtf.function(
            training_step(mtf.Dimension("layers", count), how == "scan"),
            mtf.SpmdMeshImpl(mesh, "batch:rows;d_ff:cols"), inputs=specs,
        )  # fmt: skip
        built = time.perf_counter()
        step.initialize()
        initialized = time.perf_counter()
        step(x=x)
        called = time.perf_counter()
        steps = []
        for _ in range(10):
            start = time.perf_counter()
            step(x=x)
            steps.append(time.perf_counter() - start)
        times = [built - began, initialized - built, called - initialized, statistics.median(steps)]
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=48)
    parser.add_argument("--worker", nargs=2, metavar=("HOW", "MESH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        mtf.virtual_cpus(8)
        print(*measured(arguments.worker[0], arguments.layers, arguments.worker[1]))
        return
    print(f"{machine()}; {arguments.layers} layers")
    print(
        f"{'mesh':16}{'program':12}"
        + "".join(f"{n:>16}" for n in ("build+lower s", "variables s", "first call s", "sum s", "step ms"))
    )
    for mesh in ("rows:1;cols:1", "rows:2;cols:2", "rows:2;cols:4"):
        sums = []
        for how in ("unrolled", "scan"):
            command = [
                sys.executable,
                "-m",
                "benchmarks.scan",
                "--layers",
                str(arguments.layers),
                "--worker",
                how,
                mesh,
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            build, variables, first, step = map(float, done.stdout.split()[-4:])
            sums.append(build + first)
            columns = [build, variables, first, build + first]
            print(f"{mesh:16}{how:12}" + "".join(f"{c:16.2f}" for c in columns) + f"{step * 1e3:16.1f}", flush=True)
        print(f"{'':16}{'ratio':12}{'':48}{sums[0] / sums[1]:16.1f}")


if __name__ == "__main__":
    main()
