"""Counts kernels, bytes and memory of the GPU programs, on a machine without a GPU: `make count-gpu`.

    python -m benchmarks.gpu.counted [--only=TEXT] [--kernels] [--out=FOLDER]

The compiler in JAX's CUDA plugin compiles each program for an H200: meshtf's, and the same program hand-written in JAX.
The script counts in what it has compiled, and writes `table.md` and `counted.json` into a folder, again after each
program. Each program has a separate process, one after another: GPT-2 needs minutes and several GiB. Without the plugin
nothing is counted, and the exit status is 0.

Kernels are not tuned, since that needs a GPU. So a GPU gets other kernels for matrix products. `benchmarks.gpu.kernels`
says what counts as a kernel, and which bytes it reads and writes. "Most memory" is XLA's own number, with weights,
inputs and results. With `--kernels` the table has a line for each kind of kernel.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import jax

import meshtf as mtf
from benchmarks.gpu.bench import systems_of
from benchmarks.gpu.cuda_compiler import compiled_hlo, compiled_stablehlo, h200, why_no_compiler
from benchmarks.gpu.kernels import Loop, counted_kernels
from benchmarks.gpu.measure import in_jax
from benchmarks.gpu.steps import PROGRAMS, TINY, Gpt2, Sized, Vit

_SYSTEMS = {"meshtf": "meshtf", "jax": "JAX by hand"}
"""The titles of the systems whose programs XLA compiles."""

_COUNTED: Mapping[str, Gpt2 | Sized | Vit] = PROGRAMS | {
    "GPT-2 124M, bfloat16, 16 x 1024, recompute = costly": Gpt2(
        16, bindings=("TransformerStack.recompute = 'costly'",)
    ),
}
"""The programs that are measured on a GPU, and one that trades kernels for memory."""


@dataclasses.dataclass(frozen=True)
class Counted:
    """The counts of the compiled program of one system.

    Attributes:
      kernels: the number of kernels, by kind.
      bytes: the number of bytes that they read and write, by kind.
      loops: all loops.
      memory: the most bytes of memory that are in use at a time.
      compile_s: the seconds of compilation.
    """

    kernels: Mapping[str, int]
    bytes: Mapping[str, int]
    loops: Sequence[Loop]
    memory: int
    compile_s: float

    @classmethod
    def read(cls, text: str) -> Counted:
        """Reads the counts that another process has printed."""
        fields = json.loads(text)
        return cls(**fields | {"loops": [Loop(**loop) for loop in fields["loops"]]})


Rows = dict[str, dict[str, "Counted | str"]]
"""The counts by program and system, or the reason why there are none."""


def main() -> int:
    """Counts, writes the results, and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="build/count-gpu", help="the folder to write into")
    parser.add_argument("--only", default="", help="programs whose names have this text")
    parser.add_argument("--kernels", action="store_true", help="a line in the table for each kind of kernel")
    parser.add_argument("--one", nargs=2, metavar=("SYSTEM", "NAME"), help="count in this process, and print JSON")
    arguments = parser.parse_args()
    if (why := why_no_compiler()) is not None:
        print(why)
        return 0
    if arguments.one is not None:
        print(json.dumps(dataclasses.asdict(counted(*arguments.one))))
        return 0
    rows, folder = Rows(), Path(arguments.out)
    for name in (name for name in _COUNTED if arguments.only in name):
        for system in _systems(name):
            rows.setdefault(name, {})[system] = found = _counted_apart(system, name)
            told = found if isinstance(found, str) else f"{sum(found.kernels.values()):,} kernels"
            print(f"{name}: {_SYSTEMS[system]}: {told}", flush=True)
            _write(folder, rows, has_kinds=arguments.kernels)
    print(f"\n{(folder / 'table.md').read_text()}\n{folder}: table.md, counted.json")
    return 1 if any(isinstance(found, str) for row in rows.values() for found in row.values()) else 0


def _systems(name: str) -> Sequence[str]:
    found = systems_of(name) if name in PROGRAMS else ["meshtf"]
    return [system for system in found if system in _SYSTEMS]


def counted(system: str, name: str) -> Counted:
    """Compiles a program for an H200 in this process, and counts."""
    jax.config.update("jax_platforms", "cpu")
    make = _meshtf_program if system == "meshtf" else _jax_program
    compiled, seconds = make(name)
    (module,) = compiled.hlo_modules()
    counts = counted_kernels(module.as_serialized_hlo_module_proto())
    memory = compiled.get_compiled_memory_stats().peak_memory_in_bytes
    return Counted(dict(counts.kernels), dict(counts.bytes), counts.loops, memory, seconds)


def _meshtf_program(name: str) -> tuple[Any, float]:
    """The compiled meshtf program of this name, and the seconds of its compilation."""
    mtf.virtual_gpus(1)
    with mock.patch.object(mtf.GpuMeshImpl, "kernel_platform", "cuda"):
        hlo = (_COUNTED | TINY)[name].made(mtf.GpuMeshImpl("all:1", ""))[0].hlo()
    assert hlo is not None
    return _timed(lambda devices: compiled_hlo(hlo, devices))


def _jax_program(name: str) -> tuple[Any, float]:
    """The compiled JAX program of this name, and the seconds of its compilation."""
    lowered = _lowered(name)
    return _timed(lambda devices: compiled_stablehlo(lowered.compiler_ir("stablehlo"), devices))


def _timed(compiled: Callable[[Sequence[Any]], Any]) -> tuple[Any, float]:
    devices, began = h200(), time.perf_counter()
    return compiled(devices), time.perf_counter() - began


def _lowered(name: str) -> Any:
    """Lowers the JAX program of this name for CUDA, in place of its first call. It sees a GPU, and so uses cuDNN."""
    own_jit = jax.jit

    def jit(function: Callable[..., Any], **options: Any) -> Callable[..., NoReturn]:
        def call(*arguments: Any) -> NoReturn:
            raise _LoweredError(own_jit(function, **options).trace(*arguments).lower(lowering_platforms=("cuda",)))

        return call

    with mock.patch.object(jax, "jit", jit), mock.patch.object(jax, "default_backend", return_value="gpu"):
        try:
            in_jax(name)[0]()
        except _LoweredError as error:
            return error.lowered
    raise AssertionError(f"the JAX program of {name!r} calls no jax.jit")


class _LoweredError(Exception):
    """Ends the call of a JAX program when it is lowered."""

    def __init__(self, lowered: Any) -> None:
        super().__init__()
        self.lowered = lowered


def _counted_apart(system: str, name: str) -> Counted | str:
    """Counts in another process, which then releases its memory."""
    command = [sys.executable, "-m", "benchmarks.gpu.counted", "--one", system, name]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        return Counted.read(ended.stdout.splitlines()[-1])
    return (ended.stderr.strip().splitlines() or [f"it ended with status {ended.returncode}"])[-1]


def _write(folder: Path, rows: Rows, *, has_kinds: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    own = {
        name: {system: found if isinstance(found, str) else dataclasses.asdict(found) for system, found in row.items()}
        for name, row in rows.items()
    }
    jaxlib, today = importlib.metadata.version("jaxlib"), datetime.date.today()
    head = f"NVIDIA H200, compiled by jaxlib {jaxlib} without tuning, {today}"
    (folder / "counted.json").write_text(json.dumps({"head": head, "rows": own}, indent=1))
    (folder / "table.md").write_text(f"{head}\n\n{table(rows, has_kinds=has_kinds)}\n")


def table(rows: Rows, *, has_kinds: bool) -> str:
    """The table, followed by the loops and by the reasons for missing counts."""
    heads = ("program", "system", "kernels", "GB read and written", "most memory, GiB", "seconds to compile")
    lines, notes = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"], list[str]()
    for name, system, found in ((name, system, found) for name, row in rows.items() for system, found in row.items()):
        of_program = f"{name} | {_SYSTEMS[system]}"
        if isinstance(found, str):
            notes.append(f"- {name}, {_SYSTEMS[system]}: {found}")
            continue
        memory = f"{found.memory / 2**30:.2f} | {found.compile_s:.0f}"
        lines.append(_line(of_program, sum(found.kernels.values()), sum(found.bytes.values()), memory))
        if has_kinds:
            kinds = sorted(found.bytes.items(), key=lambda item: -item[1])
            lines += [_line(f"{of_program}: {kind}", found.kernels[kind], number, " | ") for kind, number in kinds]
        notes += [f"- {name}, {_SYSTEMS[system]}: {note}" for note in _notes(found.loops)]
    return "\n".join([*lines, *([""] if notes else []), *notes])


def _line(what: str, kernels: int, read_and_written: int, rest: str) -> str:
    return f"| {what} | {kernels:,} | {read_and_written / 1e9:.2f} | {rest} |"


def _notes(loops: Sequence[Loop]) -> Iterator[str]:
    for loop, count in Counter(loops).items():
        what, kernels = "a loop" if count == 1 else f"{count} loops", f"{loop.kernels:,} kernels"
        if loop.iterations is None:
            yield f"{what} of {kernels}, whose iterations the compiler does not know, counted once"
        else:
            yield f"{what} of {loop.iterations:,} iterations, each of {kernels}"


if __name__ == "__main__":
    sys.exit(main())
