"""Compiles programs with libtpu for absent TPUs, each in a separate process."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from meshtf.errors import CompilationError, DeviceError
from meshtf.mesh_impl.tpu.compile_cache import CompileCache
from meshtf.mesh_impl.tpu.topology import TpuTopology

PINNED = {"jax": "0.10", "jaxlib": "0.10", "libtpu": ""}
"""The required packages, and the minor release whose private entry points are used."""

_FLAGS = ("LIBTPU_INIT_ARGS", "XLA_FLAGS")
"""Environment variables with which users change compiler options of libtpu and jaxlib."""

_POLL_SECONDS = 0.1
_LOG_LINES, _LOG_WIDTH = 6, 300
_FATAL = re.compile(r"^F\d{4}|Check failed|[Ff]atal|Error:|\*\*\* SIG")
_PROCESS = Path(__file__).with_name("_compiler_process.py")

_MISSING = """\
to compile for {topology}, {fact}.
The TPU's compiler is a package for Linux on x86-64 that needs no TPU; install it with its partners: \
pip install 'meshtf[tpu]'"""

_ANOTHER_RELEASE = "release {minor} of {package} is needed, whose private entry points are used; {found} is there"

_ENDED = """\
program "{program}" cannot be compiled for {topology}: libtpu's compiler, given {hlo:,.1f} MiB of HLO, \
ended with {how}, and said:
{log}
Your own process is unharmed. Another topology, or the program in smaller parts, shows which part it is."""


@dataclasses.dataclass(frozen=True)
class CompilerAnswer:
    """The result of compiling a program with libtpu.

    Attributes:
      memory: bytes of one core, by the names of `pjrt.MEMORY`.
      cost: the known costs, by the names of `pjrt.COST`.
      hlo: the optimized and scheduled program, as text.
      seconds: the time to compile.
      refused: the compiler's error, or empty. With an error, all other fields are empty.
      is_cached: whether the result comes from the cache.
    """

    memory: Mapping[str, int] = dataclasses.field(default_factory=dict)
    cost: Mapping[str, float] = dataclasses.field(default_factory=dict)
    hlo: str = ""
    seconds: float = 0.0
    refused: str = ""
    is_cached: bool = False


@dataclasses.dataclass(frozen=True)
class Waiting:
    """How to wait for a compiler, which may take minutes.

    Attributes:
      cache: the results of earlier compilations. None: everything is compiled anew.
      on_wait: called ten times per second, with the seconds since the start.
    """

    cache: CompileCache | None = None
    on_wait: Callable[[float], None] | None = None


def compile_ahead(
    hlo: bytes, program: str, topology: TpuTopology, places: Sequence[Sequence[int]], waiting: Waiting
) -> CompilerAnswer:
    """Compiles a serialized HloModuleProto with libtpu.

    Args:
      hlo: the program, for as many replicas as there are places.
      program: its name.
      topology: the topology of the TPU.
      places: the place of each replica's core, from `TpuTopology.places`.
      waiting: how to wait, and the cache to read first.

    Raises:
      DeviceError: libtpu, jax or jaxlib is not installed, or has an unsupported release.
      CompilationError: the compiler's process died.
    """
    versions = _versions(topology)
    request = {
        "library": str(_library()),
        "topology": str(topology),
        "options": topology.libtpu_options,
        "places": [list(place) for place in places],
    }
    flags = {name: os.environ[name] for name in _FLAGS if name in os.environ}
    asked = {**request, "library": versions, "flags": flags}
    kept = waiting.cache.read(hlo, asked) if waiting.cache is not None else None
    if kept is not None:
        return CompilerAnswer(**kept, is_cached=True)
    answer = _compiled(hlo, request, program, waiting.on_wait)
    if waiting.cache is not None:
        waiting.cache.write(hlo, asked, answer)
    return CompilerAnswer(**answer)


def libtpu_version(topology: TpuTopology) -> str:
    """The version of the compiler. Raises DeviceError if libtpu or another required package is not usable."""
    return _versions(topology)["libtpu"]


def _compiled(
    hlo: bytes, request: Mapping[str, Any], program: str, on_wait: Callable[[float], None] | None
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="meshtf_compile_") as path:
        folder = Path(path)
        (folder / "program.hlo").write_bytes(hlo)
        (folder / "request.json").write_text(json.dumps(request))
        with (folder / "log").open("wb") as log:
            status = _run(folder, log.fileno(), on_wait or (lambda seconds: None))
        if status:
            said = _telling_lines((folder / "log").read_text(errors="replace"))
            how = _how_it_ended(status)
            given = len(hlo) / 2**20
            raise CompilationError(
                _ENDED.format(program=program, topology=request["topology"], hlo=given, how=how, log=said)
            )
        answer = json.loads((folder / "answer.json").read_text())
        return answer if "refused" in answer else {**answer, "hlo": (folder / "optimized.hlo").read_text()}


def start_compiler(folder: Path, log: int) -> subprocess.Popen[bytes]:
    """Starts the process that compiles the program in a folder. It ends when this process ends and closes its input."""
    command = [sys.executable, "-P", str(_PROCESS), str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)


def _run(folder: Path, log: int, on_wait: Callable[[float], None]) -> int:
    """Runs the compiler process, and returns its exit status."""
    began = time.monotonic()
    with start_compiler(folder, log) as process:
        try:
            while True:
                try:
                    return process.wait(_POLL_SECONDS)
                except subprocess.TimeoutExpired:
                    on_wait(time.monotonic() - began)
        finally:
            process.kill()


def _versions(topology: TpuTopology) -> dict[str, str]:
    """The versions of the packages. Raises DeviceError if one is missing or has an unsupported version."""
    found = {}
    for package, minor in PINNED.items():
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            fact = f"the package {package} is needed, and not installed"
            raise DeviceError(_MISSING.format(topology=topology, fact=fact)) from None
        if minor and not found[package].startswith(f"{minor}."):
            fact = _ANOTHER_RELEASE.format(package=package, minor=minor, found=found[package])
            raise DeviceError(_MISSING.format(topology=topology, fact=fact))
    return found


def _library() -> Path:
    spec = importlib.util.find_spec("libtpu")
    assert spec is not None, "its metadata were found"
    assert spec.origin is not None
    return Path(spec.origin).with_name("libtpu.so")


def _telling_lines(log: str) -> str:
    """The lines of a log from the first fatal line on, or else its last lines."""
    lines = [line.strip()[:_LOG_WIDTH] for line in log.splitlines() if line.strip()]
    fatal = next((n for n, line in enumerate(lines) if _FATAL.search(line)), max(len(lines) - _LOG_LINES, 0))
    return "\n".join(f"  {line}" for line in lines[fatal : fatal + _LOG_LINES]) or "  nothing"


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"status {status}"
    name = signal.Signals(-status).name
    return f"{name}, as where memory runs out" if name == "SIGKILL" else name
