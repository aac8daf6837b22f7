"""Compares meshtf with hand-written JAX and PyTorch on one GPU, in at most six minutes: `make bench-gpu`.

    python -m benchmarks.gpu.bench [--out=FOLDER] [--only=TEXT] [--seconds=360] [--resume]

It writes a table and a picture, with the card's name, into a folder, again after each measurement. So nothing that was
measured is lost if the benchmark is ended, and `--resume` measures only the rest. Each program has a separate process.
The processes of a group compile in parallel, since compiling takes far longer than measuring. Then they use the GPU one
after another, and nothing else runs. When the time is over, the rest is listed as not measured. Without a GPU nothing
is measured, and the exit status is 0. With `--virtual`, tiny programs run on a virtual GPU.

Image models have a second table, with images per second. Their steps are also written in PyTorch, which is measured if
it is installed with its own CUDA. `--only=images` measures only ResNet-50 and ViT-S.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import final

from matplotlib.figure import Figure

import meshtf as mtf
from benchmarks.gpu.measure import COMPILED
from benchmarks.gpu.steps import PROGRAMS, TINY, Gpt2, Sized, Vit
from benchmarks.gpu.this_gpu import card_name
from benchmarks.measuring.machine import machine

_SYSTEMS = {"meshtf": "meshtf", "jax": "JAX by hand", "torch": "PyTorch by hand"}
"""The titles of the systems."""

_NO_TORCH = "PyTorch is not installed"
_TIME_OVER = "the time was over"
_GROUP = 8
"""The most programs that compile at once. Each waits with its weights on the GPU until the others have compiled."""

_COMPILE_SECONDS = 150.0
"""The seconds after which a program that still compiles is ended, so that the others of its group are measured."""

_MEMORY_AS_NEEDED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
_MEASURED = "measured.json"
_MACHINES = {"H200": "h200", "H100": "h100", "A100": "a100"}


@dataclasses.dataclass(frozen=True)
class Measured:
    """The measurement of one process. If it was not measured, `ms` is None and `why` gives the reason.

    Attributes:
      ms: the milliseconds of a step that follows others, as in training.
      first_s: the seconds of the first call.
      waited_ms: the milliseconds of a step that the host waits for.
      host_ms: the milliseconds that the host's processor works on a step that follows others.
    """

    ms: float | None
    first_s: float | None = None
    waited_ms: float | None = None
    host_ms: float | None = None
    why: str = ""


Rows = dict[str, dict[str, Measured]]
"""The measurements by program and system."""


def main() -> int:
    """Measures, writes the results, and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="build/bench-gpu", help="the folder to write into")
    parser.add_argument("--only", default="", help="programs whose names have this text")
    parser.add_argument("--seconds", type=float, default=360.0, help="after which no further program is started")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--virtual", type=int, help="the number of virtual GPUs; without, real ones")
    parser.add_argument("--resume", action="store_true", help="measure only what the folder lacks")
    arguments = parser.parse_args()
    names = [name for name in (PROGRAMS if arguments.virtual is None else TINY) if arguments.only in name]
    why = _why_no_gpu(arguments.virtual)
    if why is not None:
        print(why)
        print("\n".join(f"{name}: skipped, since there is no GPU" for name in names))
        return 0
    until, card = time.monotonic() + arguments.seconds, card_name(arguments.virtual)
    head, folder = f"{card}; {machine()}. {arguments.steps} steps of each program.", Path(arguments.out)
    rows = _measured_before(folder, head) if arguments.resume else {}
    rest = [(name, system) for name in names for system in systems_of(name) if system not in rows.get(name, {})]
    expected = predicted(card, names)
    _write(folder, head, rows, expected)
    for name, system, found in _measured_in_groups(rest, arguments.virtual, arguments.steps, until):
        rows.setdefault(name, {})[system] = found
        print(f"{name}: {system} {_cell(found.ms)} ms {found.why}".rstrip(), flush=True)
        _write(folder, head, rows, expected)
    print(f"\n{(folder / 'table.md').read_text()}\n{folder}: table.md, picture.svg")
    return 0


def _measured_before(folder: Path, head: str) -> Rows:
    """Reads what an earlier run has measured in the same way from its file in the folder."""
    file = folder / _MEASURED
    kept = json.loads(file.read_text()) if file.exists() else {"head": head, "rows": {}}
    if kept["head"] != head:
        raise SystemExit(f"{file} is of another machine, or of another number of steps: {kept['head']}")
    found = {name: {system: Measured(**m) for system, m in row.items()} for name, row in kept["rows"].items()}
    return {name: {system: m for system, m in row.items() if m.ms is not None} for name, row in found.items()}


def _write(folder: Path, head: str, rows: Rows, expected: Mapping[str, float]) -> None:
    """Writes the table, the picture, and the measurements for a later run."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {name: {system: dataclasses.asdict(m) for system, m in row.items()} for name, row in rows.items()}
    (folder / _MEASURED).write_text(json.dumps({"head": head, "rows": own}, indent=1))
    (folder / "table.md").write_text(f"{head}\n\n{table(rows, expected)}\n")
    drawn(head.split(";")[0], rows).savefig(folder / "picture.svg")


def _why_no_gpu(virtual: int | None) -> str | None:
    """The reason why there is no GPU, or None. It is found in a separate process, which releases the GPU's memory."""
    code = f"from benchmarks.gpu.this_gpu import why_no_gpu; print(why_no_gpu({virtual}) or '')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if ended.returncode:
        return ended.stderr
    return ended.stdout.strip() or None


def _measured_in_groups(
    programs: Sequence[tuple[str, str]], virtual: int | None, steps: int, until: float
) -> Iterator[tuple[str, str, Measured]]:
    """Measures programs, each with its system, group by group."""
    options = ["--wait", f"--steps={steps}", *([] if virtual is None else [f"--virtual={virtual}"])]
    for begin in range(0, len(programs), _GROUP):
        group = programs[begin : begin + _GROUP]
        for (name, system), found in zip(group, _measured(group, options, until), strict=True):
            yield name, system, found


def systems_of(name: str) -> Sequence[str]:
    """The systems in which a program is written."""
    program = (PROGRAMS | TINY)[name]
    if isinstance(program, Gpt2) and not program.has_twin_in_jax:
        return ["meshtf"]
    return [*_SYSTEMS] if _images(name) is not None else ["meshtf", "jax"]


def _images(name: str) -> int | None:
    """The number of images in a step, or None for a program without images."""
    program = (PROGRAMS | TINY)[name]
    if isinstance(program, Vit):
        return program.batch
    is_resnet = isinstance(program, Sized) and "resnet" in program.module
    return int(str(program.sizes["BATCH"])) if is_resnet else None


def _measured(group: Sequence[tuple[str, str]], options: Sequence[str], until: float) -> Iterator[Measured]:
    """Compiles all programs of a group in parallel, then measures them one by one."""
    compiling = [_start(name, system, options, until) for name, system in group]
    for program in compiling:
        if isinstance(program, _Program):
            program.wait_for_compilation()
    for program in compiling:
        yield program.measure(until - time.monotonic()) if isinstance(program, _Program) else program


def _start(name: str, system: str, options: Sequence[str], until: float) -> _Program | Measured:
    """Starts a program's process, or returns the reason why there is nothing to measure."""
    if system == "torch" and importlib.util.find_spec("torch") is None:
        return Measured(None, why=_NO_TORCH)
    left = until - time.monotonic()
    if left <= 0:
        return Measured(None, why=_TIME_OVER)
    command = [sys.executable, "-m", "benchmarks.gpu.measure", system, name, *options]
    return _Program(command, min(left, _COMPILE_SECONDS))


@final
class _Program:
    """A process that compiles a program within some seconds, prints a line, and measures when it receives a line."""

    def __init__(self, command: Sequence[str], seconds: float) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=os.environ | _MEMORY_AS_NEEDED
        )
        self._printed: list[str] = []
        self._why = ""
        self._clock = self._limit(seconds, f"it did not compile within {seconds:.0f} s")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _limit(self, seconds: float, why: str) -> threading.Timer:
        """Ends the process after some seconds, for this reason."""

        def end() -> None:
            self._why = why
            self._process.kill()

        clock = threading.Timer(seconds, end)
        clock.daemon = True  # or Ctrl-C would end the benchmark only when the time is over
        clock.start()
        return clock

    def _read(self) -> None:
        """Reads what the process prints until it has compiled, also while another program is waited for."""
        assert self._process.stdout is not None
        while (line := self._process.stdout.readline()) and line.strip() != COMPILED:
            self._printed.append(line.strip())
        self._clock.cancel()

    def wait_for_compilation(self) -> None:
        """Returns when the program is compiled, or its process has ended."""
        self._reader.join()

    def measure(self, seconds: float) -> Measured:
        """Lets the process use the GPU, and waits until it ends, at most this long."""
        clock = self._limit(max(seconds, 0.0), _TIME_OVER)
        printed, _ = self._process.communicate("\n")
        clock.cancel()
        lines = [line for line in (*self._printed, *printed.splitlines()) if line]
        if self._process.returncode == 0:
            return Measured(**json.loads(next(line for line in reversed(lines) if line.startswith("{"))))
        return Measured(None, why=self._why or (lines[-1] if lines else "it failed"))


def predicted(card: str, names: Sequence[str]) -> Mapping[str, float]:
    """The predicted milliseconds of each step, if meshtf has a description of the card."""
    known = next((name for text, name in _MACHINES.items() if text in card), None)
    if known is None:
        return {}
    on = mtf.costs.load_machine(known)
    mesh_impl = mtf.PlanMeshImpl("all:1", "", kernel_platform=on.kernel_platform)
    return {name: 1e3 * mtf.costs.predict(PROGRAMS[name].made(mesh_impl)[0].report(), on).seconds for name in names}


def table(rows: Mapping[str, Mapping[str, Measured]], expected: Mapping[str, float]) -> str:
    """The table, followed by the reasons for missing measurements. Predictions are of steps that are waited for."""
    names = [_SYSTEMS["meshtf"], _SYSTEMS["jax"]]
    waited = [f"{name}, waited for" for name in names]
    heads = ("one GPU, ms per step", *names, "ratio", *waited, "predicted, waited for", "first call, s")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    notes: list[str] = []
    for name, row in rows.items():
        ours, theirs = (row.get(system, Measured(None)) for system in ("meshtf", "jax"))
        ratio = ours.ms / theirs.ms if ours.ms is not None and theirs.ms is not None else None
        numbers = (ours.ms, theirs.ms, ratio, ours.waited_ms, theirs.waited_ms, expected.get(name), ours.first_s)
        lines.append(f"| {' | '.join((name, *map(_cell, numbers)))} |")
        notes += [f"- {name}, {system}: {m.why}" for system, m in row.items() if m.why]
    images = _images_table(rows)
    return "\n".join([*lines, *([""] if images else []), *images, *([""] if notes else []), *notes])


def _images_table(rows: Mapping[str, Mapping[str, Measured]]) -> list[str]:
    """The lines of the table of images per second, or none if no program has images."""
    lines = [f"| one GPU, images per second | {' | '.join(_SYSTEMS.values())} |", "|---" * (1 + len(_SYSTEMS)) + "|"]
    for name, row in rows.items():
        if (images := _images(name)) is not None:
            found = [row[system].ms if system in row else None for system in _SYSTEMS]
            cells = (name, *("" if ms is None else f"{1e3 * images / ms:,.0f}" for ms in found))
            lines.append(f"| {' | '.join(cells)} |")
    return lines if len(lines) > 2 else []


def _cell(number: float | None) -> str:
    return "" if number is None else f"{number:.3g}"


def drawn(card: str, rows: Mapping[str, Mapping[str, Measured]]) -> Figure:
    """Draws a bar for each meshtf program: the ratio of its time to JAX's."""
    pairs = {name: (row["meshtf"].ms, row["jax"].ms) for name, row in rows.items() if {"meshtf", "jax"} <= {*row}}
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
