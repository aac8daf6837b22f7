"""meshtf beside JAX and PyTorch by hand on one GPU, in at most six minutes: `make bench-gpu`.

    python -m benchmarks.gpu.bench [--out=FOLDER] [--only=TEXT] [--seconds=360]

Writes a table and a picture, with the card's name, into a folder. Each program has a process of its own. While one has
the GPU, the next ones import and trace, which takes longer than to measure. When the time is over, the rest is named as
not measured. Without a GPU nothing is measured, and the exit status is 0. With `--virtual` tiny programs run on a
virtual GPU.

Image models have a second table, with images per second. PyTorch has their steps too: it is measured where it is
installed, with CUDA of its own. `--only=images` measures ResNet-50 and ViT-S alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from matplotlib.figure import Figure

import meshtf as mtf
from benchmarks.gpu.steps import PROGRAMS, TINY, Sized, Vit
from benchmarks.gpu.this_gpu import card_name
from benchmarks.measuring.machine import machine

_SYSTEMS = {"meshtf": "meshtf", "jax": "JAX by hand", "torch": "PyTorch by hand"}
"""The titles of the systems."""

_NO_TORCH = "PyTorch is not installed"
_AT_ONCE = 4
_SHARE_OF_MEMORY = "0.2"
_MACHINES = {"H200": "h200", "H100": "h100", "A100": "a100"}


@dataclasses.dataclass(frozen=True)
class Measured:
    """The measurement of one process. `ms` is None if it was not measured, and `why` says why."""

    ms: float | None
    first_s: float | None = None
    why: str = ""


def main() -> int:
    """Measures, writes, and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="build/bench-gpu", help="the folder to write into")
    parser.add_argument("--only", default="", help="programs whose names have this text")
    parser.add_argument("--seconds", type=float, default=360.0, help="after which no further program is started")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--virtual", type=int, help="the number of virtual GPUs; without, real ones")
    arguments = parser.parse_args()
    names = [name for name in (PROGRAMS if arguments.virtual is None else TINY) if arguments.only in name]
    why = _why_no_gpu(arguments.virtual)
    if why is not None:
        print(why)
        print("\n".join(f"{name}: skipped, since there is no GPU" for name in names))
        return 0
    rows = _measured_rows(names, arguments.virtual, arguments.steps, time.monotonic() + arguments.seconds)
    card = card_name(arguments.virtual)
    text = f"{card}; {machine()}. {arguments.steps} steps of each program.\n\n{table(rows, predicted(card, names))}\n"
    folder = Path(arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(text)
    drawn(card, rows).savefig(folder / "picture.svg")
    print(f"{text}\n{folder}: table.md, picture.svg")
    return 0


def _why_no_gpu(virtual: int | None) -> str | None:
    """Asks a process of its own, since whoever opens the GPU takes most of its memory."""
    code = f"from benchmarks.gpu.this_gpu import why_no_gpu; print(why_no_gpu({virtual}) or '')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if ended.returncode:
        return ended.stderr
    return ended.stdout.strip() or None


def _measured_rows(
    names: Sequence[str], virtual: int | None, steps: int, until: float
) -> Mapping[str, Mapping[str, Measured]]:
    """Measures each program with each system."""
    with tempfile.NamedTemporaryFile() as turn, ThreadPoolExecutor(_AT_ONCE) as pool:
        options = [f"--steps={steps}", f"--turn={turn.name}", *([] if virtual is None else [f"--virtual={virtual}"])]
        both = [(name, system) for name in names for system in systems_of(name)]
        found = [*pool.map(lambda one: _measured(one[1], one[0], options, until), both)]
    return {name: {s: m for (n, s), m in zip(both, found, strict=True) if n == name} for name in names}


def systems_of(name: str) -> Sequence[str]:
    """The systems in which a program is written."""
    return [*_SYSTEMS] if _images(name) is not None else [system for system in _SYSTEMS if system != "torch"]


def _images(name: str) -> int | None:
    """The images of a step, or None for a program of something else."""
    program = (PROGRAMS | TINY)[name]
    if isinstance(program, Vit):
        return program.batch
    is_resnet = isinstance(program, Sized) and "resnet" in program.module
    return int(str(program.sizes["BATCH"])) if is_resnet else None


def _measured(system: str, name: str, options: Sequence[str], until: float) -> Measured:
    if system == "torch" and importlib.util.find_spec("torch") is None:
        return Measured(None, why=_NO_TORCH)
    left = until - time.monotonic()
    if left <= 0:
        return Measured(None, why="the time was over")
    command = [sys.executable, "-m", "benchmarks.gpu.measure", system, name, *options]
    own = os.environ | {"XLA_PYTHON_CLIENT_MEM_FRACTION": _SHARE_OF_MEMORY}
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=left, check=False, env=own)
    except subprocess.TimeoutExpired:
        return Measured(None, why="the time was over")
    if ended.returncode:
        return Measured(None, why=ended.stderr.strip().splitlines()[-1] if ended.stderr.strip() else "it failed")
    measured = Measured(**json.loads(ended.stdout.splitlines()[-1]))
    print(f"{name}: {system} {_cell(measured.ms)} ms", flush=True)
    return measured


def predicted(card: str, names: Sequence[str]) -> Mapping[str, float]:
    """The predicted milliseconds of a step, if the card is one that the package describes."""
    known = next((name for text, name in _MACHINES.items() if text in card), None)
    if known is None:
        return {}
    on = mtf.costs.load_machine(known)
    mesh_impl = mtf.PlanMeshImpl("all:1", "", kernel_platform=on.kernel_platform)
    return {name: 1e3 * mtf.costs.predict(PROGRAMS[name].made(mesh_impl)[0].report(), on).seconds for name in names}


def table(rows: Mapping[str, Mapping[str, Measured]], expected: Mapping[str, float]) -> str:
    """The table, and below it the reasons of what is missing."""
    heads = ("one GPU, ms per step", _SYSTEMS["meshtf"], _SYSTEMS["jax"], "ratio", "predicted", "first call, s")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    notes: list[str] = []
    for name, row in rows.items():
        ours, theirs = row["meshtf"], row["jax"]
        ratio = _cell(ours.ms / theirs.ms) if ours.ms is not None and theirs.ms is not None else ""
        cells = (name, _cell(ours.ms), _cell(theirs.ms), ratio, _cell(expected.get(name)), _cell(ours.first_s))
        lines.append(f"| {' | '.join(cells)} |")
        notes += [f"- {name}, {system}: {m.why}" for system, m in row.items() if m.why]
    images = _images_table(rows)
    return "\n".join([*lines, *([""] if images else []), *images, *([""] if notes else []), *notes])


def _images_table(rows: Mapping[str, Mapping[str, Measured]]) -> list[str]:
    """The lines of the table of images per second, or none if no program has images."""
    lines = [f"| one GPU, images per second | {' | '.join(_SYSTEMS.values())} |", "|---" * (1 + len(_SYSTEMS)) + "|"]
    for name, row in rows.items():
        if (images := _images(name)) is not None:
            found = [row[system].ms for system in _SYSTEMS]
            cells = (name, *("" if ms is None else f"{1e3 * images / ms:,.0f}" for ms in found))
            lines.append(f"| {' | '.join(cells)} |")
    return lines if len(lines) > 2 else []


def _cell(number: float | None) -> str:
    return "" if number is None else f"{number:.3g}"


def drawn(card: str, rows: Mapping[str, Mapping[str, Measured]]) -> Figure:
    """A bar for each program in the language: its time as a ratio to JAX's."""
    pairs = {name: (row["meshtf"].ms, row["jax"].ms) for name, row in rows.items()}
    ratios = {name: ours / theirs for name, (ours, theirs) in pairs.items() if ours is not None and theirs is not None}
    figure = Figure(figsize=(8, 0.35 * len(ratios) + 1.2), layout="constrained")
    plot = figure.subplots()
    plot.barh(list(ratios), list(ratios.values()), color="tab:blue")
    plot.axvline(1.0, color="black", linewidth=1)
    plot.invert_yaxis()
    plot.set_xlabel("time of a step as a ratio to JAX by hand")
    plot.set_title(card)
    return figure


if __name__ == "__main__":
    sys.exit(main())
