"""Memory of training steps on one core of a TPU: as planned, and as the TPU's own compiler has it.

    python -m benchmarks.plan_against_compiler [--rows=3] [--cache_dir=FOLDER]

No TPU is needed, and nothing runs. The last row takes minutes to compile.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence

import meshtf as mtf
from benchmarks.machine import machine
from meshtf.errors import MeshtfError
from meshtf.lowering.ahead.compilation import Compilation
from meshtf.lowering.report.text_table import Column, bytes_text, table
from meshtf.train.configuration import find_gin_file, read_configuration
from meshtf.train.gin_files.bindings import Parameter
from meshtf.train.step_programs import training_step
from meshtf.train.training import configured_training

_PARTS = "heads:cols;d_ff:cols;vocab:cols;d_model:rows"
_LONG = ("TextTask.length=1024",)


@dataclasses.dataclass(frozen=True)
class Row:
    """A training, by its configurations and what differs from them, and the TPU."""

    name: str
    files: Sequence[str]
    mesh_shape: str
    topology: str
    bindings: Sequence[str] = ()


def _text(name: str, mesh_shape: str, topology: str, batch: int, *bindings: str) -> Row:
    title = f"{name}, {batch} x 1024" + ", in parts" * any("parameter_layout" in b for b in bindings)
    title += ", recomputed" * any("recompute" in b for b in bindings)
    batched = (f"Training.batch_size={batch}", *_LONG, *bindings)
    return Row(title, ("lm_tiny", name), mesh_shape, topology, batched)


_SHARDED = f"Training.parameter_layout='{_PARTS}'"
_RECOMPUTED = "TransformerStack.recompute='nothing'"
ROWS = [
    Row("digits_mlp", ("digits_mlp",), "rows:2;cols:4", "v5e:2x4"),
    Row("lm_tiny", ("lm_tiny",), "rows:4;cols:2", "v5e:2x4"),
    Row("lm_tiny, 1,024 at a time", ("lm_tiny",), "rows:4;cols:2", "v5e:2x4", ("Training.batch_size=1024",)),
    Row("moe_tiny", ("moe_tiny",), "rows:4;cols:2", "v5e:2x4"),
    Row("moe_tiny, 1,024 at a time", ("moe_tiny",), "rows:4;cols:2", "v5e:2x4", ("Training.batch_size=1024",)),
    _text("gpt2", "rows:8;cols:1", "v5e:2x4", 32),
    _text("gpt2", "rows:2;cols:4", "v5e:2x4", 32),
    _text("gpt2", "rows:8;cols:1", "v5p:2x2x2", 128),
    _text("gpt2", "rows:8;cols:1", "v4:2x2x2", 64, _SHARDED, _RECOMPUTED),
    _text("llama", "rows:4;cols:4", "v5p:2x2x4", 16, _SHARDED),
    _text("llama", "rows:4;cols:4", "v4:2x2x4", 64, _SHARDED, _RECOMPUTED),
    _text("llama", "rows:8;cols:8", "v5e:8x8", 64, _SHARDED, _RECOMPUTED),
    _text("gpt2_xl", "rows:4;cols:4", "v5p:2x2x4", 64, _SHARDED, _RECOMPUTED),
    Row(
        "llama_2_70b, 1024 x 4096, in parts, recomputed",
        ("lm_tiny", "llama_2_70b"),
        "rows:64;cols:8",
        "v5p:8x8x8",
        ("Training.batch_size=1024", "TextTask.length=4096", _SHARDED, _RECOMPUTED),
    ),
]


def step_of(row: Row) -> mtf.Function:
    """The training step, on a mesh on paper."""
    bindings = [*row.bindings, f"Training.mesh_shape='{row.mesh_shape}'"]
    read_configuration(
        [find_gin_file(f"{name}.gin") for name in row.files], [Parameter("", binding) for binding in bindings]
    )
    training = configured_training()
    return training_step(
        training, mtf.PlanMeshImpl(training.mesh_shape, training.layout, options=training.mesh_options)
    )


def compared(row: Row, cache_dir: str | None) -> tuple[str, ...]:
    """The cells of a row."""
    try:
        compiled = step_of(row).compile(row.topology, cache_dir=cache_dir)
    except MeshtfError as error:
        return (row.name, row.topology, *[""] * 4, str(error).splitlines()[1].strip())
    return (row.name, row.topology, *_cells(compiled), f"{compiled.compile_seconds:.0f} s")


def _cells(compiled: Compilation) -> tuple[str, ...]:
    m, seconds = compiled.memory, compiled.seconds
    return (
        bytes_text(m.peak),
        bytes_text(m.arguments + m.results - m.aliased + m.temporaries),
        bytes_text(compiled.planned_peak),
        "" if seconds is None else f"{1000 * seconds:.3g}",
    )


COLUMNS = [
    Column("training step"),
    Column("topology"),
    Column("at the peak", True),
    Column("set aside", True),
    Column("plan", True),
    Column("ms at best", True),
    Column("to compile", True),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=len(ROWS), help="how many, from the smallest on")
    parser.add_argument("--cache_dir", help="where answers of the compiler are kept")
    arguments = parser.parse_args()
    print(machine())
    rows = []
    for row in ROWS[: arguments.rows]:
        rows.append(compared(row, arguments.cache_dir))
        print("  ".join(cell.strip() for cell in rows[-1]), flush=True)
    print("a core's memory: at the peak and set aside by the compiler, and planned")
    print("\n".join(table(COLUMNS, rows, 160)))


if __name__ == "__main__":
    main()
