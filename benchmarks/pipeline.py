"""Compares two pipeline stages on two cores with one stage on one core, and with GPipe's Table 2.

    python -m benchmarks.pipeline

Each row is a training step (values, gradients, an SGD update) of residual perceptrons over [batch, length, d_model], in
a separate process, with the same batch. TensorFlow has one thread per core, within and between operations. All rows
recompute like GPipe: only the inputs of a stage are kept in each step. "useful" is the schedule's share of stage-steps
that are not bubble. GPipe's rows (Huang et al. 2018, Table 2, Transformer-48 on 2 TPUs) are relative to its K = 2,
M = 1. Its batches grow as memory allows; these do not.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import subprocess
import sys
import time

import numpy as np
import tensorflow as tf

import meshtf as mtf
from benchmarks.measuring.machine import machine
from meshtf.layers import PipelineSchedule, dense, layer_norm, pipeline

BATCH, LENGTH = mtf.Dimension("batch", 32), mtf.Dimension("length", 64)
D_MODEL, D_FF, LAYERS = mtf.Dimension("d_model", 256), mtf.Dimension("d_ff", 1024), mtf.Dimension("layers", 8)
GPIPE = {1: 1.0, 4: 1.7, 32: 1.8}


@dataclasses.dataclass(frozen=True)
class Row:
    """A schedule, on one core per stage."""

    stages: int
    microbatches: int
    rounds: int = 1

    @property
    def schedule(self) -> PipelineSchedule:
        return PipelineSchedule(self.stages, self.microbatches, self.rounds)


ONE_STAGE, UNSPLIT = Row(1, 1), Row(2, 1)
ROWS = [ONE_STAGE, UNSPLIT, Row(2, 4), Row(2, 32), Row(2, 4, 4), Row(2, 32, 4), Row(1, 4), Row(1, 32)]


def layer(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> list[mtf.Tensor]:
    (x,) = carried
    h = dense(layer_norm(x, D_MODEL), [D_FF], activation=mtf.relu)
    return [x + dense(h, [D_MODEL], [D_FF], name="out")]


def seconds(row: Row, steps: int) -> float:
    """The median time of a step."""
    threads = row.stages
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    mtf.virtual_cpus(row.stages)

    def train_step(x: mtf.Tensor) -> mtf.Tensor:
        (y,) = pipeline(layer, x, LAYERS, row.schedule, recompute="nothing")
        loss = mtf.reduce_mean(mtf.square(y))
        mtf.optimize.SgdOptimizer(0.1).minimize(loss)
        return loss

    x = np.random.default_rng(0).normal(size=[BATCH.size, LENGTH.size, D_MODEL.size]).astype(np.float32)
    mesh_impl = mtf.SpmdMeshImpl(f"stages:{row.stages}", "stage:stages")
    step = mtf.function(train_step, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, LENGTH, D_MODEL])})
    float(step(x=x))
    times = []
    for _ in range(steps):
        began = time.perf_counter()
        float(step(x=x))
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def measured(row: Row, steps: int) -> float:
    """Measures `seconds` in a separate process, with one core per stage."""
    numbers = [str(n) for n in dataclasses.astuple(row)]
    command = [sys.executable, "-m", "benchmarks.pipeline", "--steps", str(steps), "--worker", *numbers]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="of which the median counts")
    parser.add_argument("--worker", nargs=3, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        row = Row(*arguments.worker)
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: row.stages])
        print(seconds(row, arguments.steps))
        return
    print(f"{machine()}; batch of {BATCH.size} x {LENGTH.size} tokens, {LAYERS.size} layers")
    print(f"{'K':>3}{'M':>4}{'R':>3}{'step ms':>10}{'useful':>8}{'to K=1,M=1':>12}{'to K=2,M=1':>12}{'GPipe':>7}")
    times = {row: measured(row, arguments.steps) for row in (ONE_STAGE, UNSPLIT)}
    for row in ROWS:
        own = times[row] if row in times else measured(row, arguments.steps)
        gpipe = f"{GPIPE[row.microbatches]:.1f}" if (row.stages, row.rounds) == (2, 1) else ""
        print(
            f"{row.stages:3}{row.microbatches:4}{row.rounds:3}{own * 1e3:10.0f}{1 - row.schedule.bubble:8.2f}"
            f"{times[ONE_STAGE] / own:12.2f}{times[UNSPLIT] / own:12.2f}{gpipe:>7}",
            flush=True,
        )


if __name__ == "__main__":
    main()
