"""The compiler in its own process: it may be missing, die, or be left alone."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

import pytest

from meshtf.errors import CompilationError, DeviceError
from meshtf.mesh_impl.tpu import ahead_compiler
from meshtf.mesh_impl.tpu.ahead_compiler import Waiting, compile_ahead
from meshtf.mesh_impl.tpu.compile_cache import CompileCache
from meshtf.mesh_impl.tpu.topology import TpuTopology

V5E = TpuTopology.of("v5e:1x1")
PLACES = [(0, 0, 0, 0)]


def use_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """In place of libtpu, a process with this body."""
    process = tmp_path / "process.py"
    process.write_text(f"import os, sys, time\n{body}\n")
    monkeypatch.setattr(ahead_compiler, "_PROCESS", process)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("print('F1122 x.cc:3] Check failed: a == b'); sys.stdout.flush(); os.abort()", r"SIGABRT.*\n  F1122 x.cc:3\]"),
        ("os.kill(os.getpid(), 9)", "SIGKILL, as where memory runs out, and said:\n  nothing"),
        ("raise KeyError('what')", "status 1(.|\n)*KeyError: 'what'"),
    ],
)
def test_a_compiler_that_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, said: str) -> None:
    use_compiler(tmp_path, monkeypatch, body)
    with pytest.raises(CompilationError, match=said) as raised:
        compile_ahead(bytes(2**20), "step", V5E, PLACES, Waiting())
    said_first = 'program "step" cannot be compiled for v5e:1x1: libtpu\'s compiler, given 1.0 MiB of HLO, ended with '
    assert str(raised.value).startswith(said_first)


def test_what_is_kept_is_of_the_same_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_compiler(tmp_path, monkeypatch, """open(f"{sys.argv[1]}/answer.json", "w").write('{"refused": "no"}')""")
    waiting = Waiting(CompileCache(tmp_path / "kept"))
    for name in ("LIBTPU_INIT_ARGS", "XLA_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    assert [compile_ahead(b"", "step", V5E, PLACES, waiting).is_cached for _ in range(2)] == [False, True]
    for name in ("LIBTPU_INIT_ARGS", "XLA_FLAGS"):
        monkeypatch.setenv(name, "--xla_one=1")
        assert not compile_ahead(b"", "step", V5E, PLACES, waiting).is_cached


def test_a_process_that_is_waited_for_is_ended_when_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_compiler(
        tmp_path, monkeypatch, f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(9999)"
    )
    seen: list[float] = []

    def interrupt(seconds: float) -> None:
        seen.append(seconds)
        if (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_ahead(b"", "step", V5E, PLACES, Waiting(on_wait=interrupt))
    assert seen == sorted(seen)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_the_compiler_ends_with_who_started_it(tmp_path: Path) -> None:
    """Its standard input ends, and so does it, although what it reads never comes."""
    os.mkfifo(tmp_path / "request.json")
    process = ahead_compiler.start_compiler(tmp_path, os.open(os.devnull, os.O_WRONLY))
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=500) == 1


@pytest.mark.parametrize(
    ("package", "version", "said"),
    [
        ("libtpu", None, "the package libtpu is needed, and not installed"),
        ("jaxlib", "0.99.1", "release 0.10 of jaxlib is needed, whose private entry points are used; 0.99.1 is there"),
    ],
)
def test_what_is_missing_is_said_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, package: str, version: str | None, said: str
) -> None:
    version_of = importlib.metadata.version

    def found(name: str) -> str:
        if name != package:
            return version_of(name)
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", found)
    with pytest.raises(DeviceError, match=said) as raised:
        compile_ahead(b"", "step", V5E, PLACES, Waiting())
    assert "pip install 'meshtf[tpu]'" in str(raised.value)
