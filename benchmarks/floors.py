"""Computes lower bounds for the time of a workload's step on this machine: arithmetic, memory of updates, dispatch.

    python -m benchmarks.floors

It measures the fastest float32 matrix product, the rate at which memory is read and written, and the cost of a small op
of a `tf.function`. The plan of each step, on one core and without fusion, tells how much of these it needs: FLOPs,
bytes of weights and moments (read and written once), and operations. A step takes at least the largest of the three
times. The rest of a measured step is memory traffic of activations, and work that does not overlap.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import meshtf as mtf
from benchmarks import transformer_step
from benchmarks.measuring.machine import machine
from benchmarks.workloads.wide_transformer import SIZES as WIDE

OPS = 1000


@dataclasses.dataclass(frozen=True)
class Machine:
    """The rates of this machine: FLOPs/s of float32 products, bytes/s of memory, and seconds of a small op."""

    flops: float
    bandwidth: float
    op: float

    @classmethod
    def measured(cls) -> Machine:
        n = 2048
        a = tf.random.stateless_normal([n, n], [0, 1])
        big = tf.Variable(tf.zeros([1 << 26]))
        small = [tf.Variable(tf.zeros([])) for _ in range(OPS)]
        one = tf.ones([1 << 26])

        @tf.function(autograph=False)
        def product() -> tf.Tensor:
            return tf.matmul(a, a)

        @tf.function(autograph=False)
        def added() -> None:
            big.assign_add(one)

        @tf.function(autograph=False)
        def many() -> None:
            for variable in small:
                variable.assign_add(1.0)

        return cls(2 * n**3 / _least(product), 3 * 4 * (1 << 26) / _least(added), _least(many) / OPS)


def _least(call: Callable[[], object], times: int = 7) -> float:
    """The seconds of the fastest call."""
    call()
    found = []
    for _ in range(times):
        began = time.perf_counter()
        result = call()
        if isinstance(result, tf.Tensor):
            np.asarray(result)
        found.append(time.perf_counter() - began)
    return min(found)


def steps() -> dict[str, mtf.Function]:
    on_paper = mtf.PlanMeshImpl("all:1", "")
    return {
        "a small Transformer": transformer_step.meshtf_step(on_paper),
        "one four times as wide": transformer_step.meshtf_step(on_paper, WIDE),
    }


def as_table(rates: Machine) -> str:
    lines = [
        "| step | GFLOP | at the product's rate, ms | weights, moments, MiB | at memory's rate, ms | operations | ms |",
        "|---" * 7 + "|",
    ]
    for name, step in steps().items():
        report = step.report()
        num_bytes, ops = report.memory.weights + report.memory.slots, len(report.operations)
        cells = [
            name, f"{report.flops_per_core / 1e9:.1f}", f"{report.flops_per_core / rates.flops * 1e3:.0f}",
            f"{num_bytes / 2**20:.0f}", f"{2 * num_bytes / rates.bandwidth * 1e3:.1f}",
            f"{ops}", f"{ops * rates.op * 1e3:.1f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def text() -> str:
    """The measured rates of the machine, and the table."""
    rates = Machine.measured()
    return (
        f"{machine()}: products {rates.flops / 1e9:.0f} GFLOP/s, memory {rates.bandwidth / 1e9:.1f} GB/s, "
        f"a small op {rates.op * 1e6:.1f} us.\n\n{as_table(rates)}\n"
    )


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(text())


if __name__ == "__main__":
    main()
