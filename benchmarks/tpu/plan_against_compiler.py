"""Compares the planned memory of training steps on one core of a TPU with the memory that the TPU's compiler reports.

    python -m benchmarks.tpu.plan_against_compiler [--only=TEXT] [--compile=kept|missing|anew] [--cache_dir=FOLDER]

The compiler's results are stored in `plan_against_compiler.json` in the same folder, with the compiler's version, since
the last rows take many minutes to compile. Plans are always made anew. `--compile=missing` compiles the rows without a
stored result, `--compile=anew` all rows. No TPU is needed, and nothing runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import meshtf as mtf
from benchmarks.measuring.machine import machine
from benchmarks.published.trainings import TRAININGS, Training
from meshtf.errors import MeshtfError
from meshtf.lowering.report.report import MemoryRecord
from meshtf.lowering.report.text_table import Column, bytes_text, table
from meshtf.train.configuration import find_gin_file, read_configuration
from meshtf.train.gin_files.bindings import Parameter
from meshtf.train.step_programs import training_step
from meshtf.train.training import configured_training

_PARTS = "heads:cols;d_ff:cols;vocab:cols;d_model:rows"
PLAIN = "SelfAttention.algorithm='plain'"
"""The binding for whole matrices of scores, with which the stored results were compiled."""
_LONG = ("TextTask.length=1024", PLAIN)


PUBLISHED = [
    ("Mesh-TensorFlow LM 0.22B", "v5e:4x8"),
    ("Mesh-TensorFlow LM 1.28B", "v5e:8x16"),
    ("GShard 128E 12L", "v4:4x4x8"),
    ("Lingvo 128B 8x16 by rules", "v5p:4x4x8"),
    ("Lingvo 128B 8x16 2-D", "v5p:4x4x8"),
    ("Lingvo 41B 16x32 by rules", "v4:4x8x16"),
    ("GShard 512E 12L", "v4:8x8x8"),
]
"""Trainings of `benchmarks.published.trainings`, and topologies with the same number of cores."""

KEPT = Path(__file__).with_suffix(".json")
_USED = re.compile(r"(?:Used |\()([\d.]+\w)")


@dataclasses.dataclass(frozen=True)
class Row:
    """A training, given by its configurations and changes to them, and the TPU."""

    name: str
    files: Sequence[str]
    mesh_shape: str
    topology: str
    bindings: Sequence[str] = ()

    @property
    def key(self) -> str:
        """The key of the row's stored numbers."""
        return f"{self.name} on {self.topology}, {self.mesh_shape}"


def _text(name: str, mesh_shape: str, topology: str, batch: int, *bindings: str) -> Row:
    title = f"{name}, {batch} x 1024" + ", in parts" * any("parameter_layout" in b for b in bindings)
    title += ", recomputed" * any("recompute" in b for b in bindings)
    title += ", unrolled" * any("unroll" in b for b in bindings)
    batched = (f"Training.batch_size={batch}", *_LONG, *bindings)
    return Row(title, ("lm_tiny", name), mesh_shape, topology, batched)


_SHARDED = f"Training.parameter_layout='{_PARTS}'"
_RECOMPUTED = "TransformerStack.recompute='nothing'"
_MASKED = (
    "Training.model=@MaskedLM()",
    "Training.batch_size=256",
    "TextTask.objective=@MaskedLanguageModel()",
    "TextTask.length=128",
    "ByteVocabulary.extra_ids=1",
    "SelfAttention.rotary=None",
)
ROWS = [
    Row("digits_mlp", ("digits_mlp",), "rows:2;cols:4", "v5e:2x4"),
    Row("lm_tiny", ("lm_tiny",), "rows:4;cols:2", "v5e:2x4"),
    Row("lm_tiny, 1,024 at a time", ("lm_tiny",), "rows:4;cols:2", "v5e:2x4", ("Training.batch_size=1024",)),
    Row("digits_mlp", ("digits_mlp",), "rows:2;cols:4", "v3:2x2"),
    Row("lm_tiny", ("lm_tiny",), "rows:4;cols:2", "v3:2x2"),
    Row("lm_tiny, 1,024 at a time", ("lm_tiny",), "rows:4;cols:2", "v3:2x2", ("Training.batch_size=1024",)),
    Row("moe_tiny", ("moe_tiny",), "rows:4;cols:2", "v5e:2x4"),
    Row("moe_tiny, 1,024 at a time", ("moe_tiny",), "rows:4;cols:2", "v5e:2x4", ("Training.batch_size=1024",)),
    _text("gpt2", "rows:8;cols:1", "v5e:2x4", 32),
    _text("gpt2", "rows:2;cols:4", "v5e:2x4", 32),
    _text("gpt2", "rows:8;cols:1", "v5p:2x2x2", 128),
    _text("gpt2", "rows:8;cols:1", "v4:2x2x2", 64, _SHARDED, _RECOMPUTED),
    _text("llama", "rows:4;cols:4", "v5p:2x2x4", 16, _SHARDED),
    _text("llama", "rows:4;cols:4", "v4:2x2x4", 64, _SHARDED, _RECOMPUTED),
    _text("llama", "rows:8;cols:8", "v5e:8x8", 64, _SHARDED, _RECOMPUTED),
    _text("llama", "rows:4;cols:4", "v5p:2x2x4", 16, _SHARDED, "TransformerStack.unroll=True"),
    Row("bert, 256 x 128", ("lm_tiny", "bert"), "rows:4;cols:4", "v5e:4x4", _MASKED),
    _text("gpt2_xl", "rows:4;cols:4", "v5p:2x2x4", 64, _SHARDED, _RECOMPUTED),
    Row(
        "llama_2_70b, 1024 x 4096, in parts, recomputed",
        ("lm_tiny", "llama_2_70b"),
        "rows:64;cols:8",
        "v5p:8x8x8",
        ("Training.batch_size=1024", "TextTask.length=4096", PLAIN, _SHARDED, _RECOMPUTED),
    ),
]


def step_of(row: Row) -> mtf.Function:
    """The training step, on a mesh without devices."""
    bindings = [*row.bindings, f"Training.mesh_shape='{row.mesh_shape}'"]
    read_configuration(
        [find_gin_file(f"{name}.gin") for name in row.files], [Parameter("", binding) for binding in bindings]
    )
    training = configured_training()
    return training_step(
        training, mtf.PlanMeshImpl(training.mesh_shape, training.layout, options=training.mesh_options)
    )


def _published(training: Training, topology: str) -> Row:
    """A row of `benchmarks.published.trainings`."""
    files = [name.removesuffix(".gin") for name in training.files]
    return Row(training.name, files, training.mesh_shape, topology, tuple(training.all_bindings()))


def rows() -> list[Row]:
    published = {training.name: training for training in TRAININGS}
    return [*ROWS, *(_published(published[name].with_plain_attention(), topology) for name, topology in PUBLISHED)]


def said_by_compiler(step: mtf.Function, topology: str, cache_dir: str | None) -> dict[str, Any]:
    """The compiler's result for a row, in the stored form: the compiler's version, and its numbers or its error."""
    try:
        compiled = step.compile(topology, cache_dir=cache_dir)
    except MeshtfError as error:
        return {"libtpu": importlib.metadata.version("libtpu"), "refused": str(error).splitlines()[1].strip()}
    return {
        "libtpu": compiled.libtpu,
        **dataclasses.asdict(compiled.memory),
        "seconds": compiled.seconds,
        "compile_seconds": round(compiled.compile_seconds),
    }


def cells(row: Row, said: Mapping[str, Any], planned: MemoryRecord) -> tuple[str, ...]:
    """The cells of a row of the table."""
    if "refused" in said:
        used = _USED.search(said["refused"])
        fact = f"over: {used[1]}" if used else "refused"
        return (row.name, row.mesh_shape, row.topology, "", "", "", fact, *_planned(planned), "")
    set_aside = said["arguments"] + said["results"] - said["aliased"] + said["temporaries"]
    numbers = (said["arguments"], said["temporaries"], set_aside, said["peak"])
    ratio = f"{(planned.compiled_peak or 0) / said['peak']:.2f}"
    return (row.name, row.mesh_shape, row.topology, *map(bytes_text, numbers), *_planned(planned), ratio)


def _planned(planned: MemoryRecord) -> tuple[str, str]:
    return bytes_text(planned.compiled_peak or 0), bytes_text(planned.peak)


COLUMNS = [
    Column("training step"),
    Column("mesh"),
    Column("topology"),
    Column("arguments", True),
    Column("temporaries", True),
    Column("set aside", True),
    Column("at the peak", True),
    Column("plan for XLA", True),
    Column("unfused", True),
    Column("plan / peak", True),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows whose names have this text")
    parser.add_argument("--compile", default="kept", choices=("kept", "missing", "anew"), help="which rows")
    parser.add_argument("--cache_dir", help="where answers of the compiler are kept besides, with the programs")
    arguments = parser.parse_args()
    print(machine())
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    lines = []
    for row in rows():
        is_compiled = arguments.compile == "anew" or (arguments.compile == "missing" and row.key not in kept)
        if arguments.only not in row.name or (row.key not in kept and not is_compiled):
            continue
        step = step_of(row)
        if is_compiled:
            said = said_by_compiler(step, row.topology, arguments.cache_dir)
            kept = {**(json.loads(KEPT.read_text()) if KEPT.exists() else {}), row.key: said}
            KEPT.write_text(json.dumps(kept, indent=2) + "\n")
        lines.append(cells(row, kept[row.key], step.report().memory))
        print("  ".join(cell.strip() for cell in lines[-1]), flush=True)
    print("a core's memory: set aside and at the peak by the compiler, and planned for XLA, and as kernel after kernel")
    print("\n".join(table(COLUMNS, lines, 160)))


if __name__ == "__main__":
    main()
