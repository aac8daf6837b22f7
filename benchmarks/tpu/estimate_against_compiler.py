"""Compares the predicted cost of a training step on a TPU with the best-case estimate of the TPU's own compiler.

    python -m benchmarks.tpu.estimate_against_compiler [--rows=2] [--cache_dir=FOLDER]

It compares FLOPs, bytes to and from memory, and time, each for one core. The compiler counts the body of a loop once,
so layers are unrolled here. It counts no time for a large transfer between cores, and assumes that every unit of the
chip is always busy. No TPU is needed, and nothing runs.
"""

from __future__ import annotations

import argparse

import meshtf as mtf
from benchmarks.measuring.machine import machine
from benchmarks.tpu.plan_against_compiler import PLAIN, Row, step_of
from meshtf.lowering.report.text_table import Column, table

_UNROLLED = ("TransformerStack.unroll=True",)
_TWO_LAYERS = (*_UNROLLED, "TransformerStack.num_layers=2", "TextTask.length=1024", PLAIN)
ROWS = [
    Row("digits_mlp", ("digits_mlp",), "rows:2;cols:4", "v5e:2x4"),
    Row("lm_tiny", ("lm_tiny",), "rows:4;cols:2", "v5e:2x4", _UNROLLED),
    Row("lm_tiny", ("lm_tiny",), "rows:4;cols:2", "v4:2x2x2", _UNROLLED),
    Row("moe_tiny", ("moe_tiny",), "rows:4;cols:2", "v5e:2x4", _UNROLLED),
    Row(
        "two layers of gpt2, 32 x 1024",
        ("lm_tiny", "gpt2"),
        "rows:8;cols:1",
        "v5e:2x4",
        ("Training.batch_size=32", *_TWO_LAYERS),
    ),
    Row(
        "two layers of gpt2, 32 x 1024",
        ("lm_tiny", "gpt2"),
        "rows:2;cols:4",
        "v5p:2x2x2",
        ("Training.batch_size=32", *_TWO_LAYERS),
    ),
]


def compared(row: Row, cache_dir: str | None) -> tuple[str, ...]:
    """The cells of a row."""
    step = step_of(row)
    compiled = step.compile(row.topology, cache_dir=cache_dir)
    report = step.report()
    predicted = mtf.costs.predict(report, mtf.costs.load_machine(row.topology.partition(":")[0]))
    moved = sum(o.times * (o.fused_bytes_read + o.fused_bytes_written) for o in report.operations)
    estimates = [
        (report.flops_per_core, compiled.flops, 1e9),
        (moved, compiled.bytes_accessed, 1e9),
        (predicted.seconds - predicted.parts.communication, compiled.seconds, 1e-3),
    ]
    cells = [_beside(own, other, unit) for own, other, unit in estimates]
    return (row.name, row.topology, *(cell for pair in cells for cell in pair), f"{1000 * predicted.seconds:.3g}")


def _beside(own: float, other: float | None, unit: float) -> tuple[str, str]:
    return f"{own / unit:.3g}", "" if other is None else f"{other / unit:.3g}"


COLUMNS = [
    Column("training step"),
    Column("topology"),
    Column("GFLOP", True),
    Column("compiler", True),
    Column("GB", True),
    Column("compiler", True),
    Column("ms on the core", True),
    Column("compiler", True),
    Column("ms, all", True),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=len(ROWS), help="how many, from the smallest on")
    parser.add_argument("--cache_dir", help="where answers of the compiler are kept")
    arguments = parser.parse_args()
    print(machine())
    rows = []
    for row in ROWS[: arguments.rows]:
        rows.append(compared(row, arguments.cache_dir))
        print("  ".join(rows[-1]), flush=True)
    print("\n".join(table(COLUMNS, rows, 160)))


if __name__ == "__main__":
    main()
