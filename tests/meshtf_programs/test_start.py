"""The console scripts, as a user starts them."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import meshtf_programs
from meshtf_programs import start

TREE = Path(start.__file__).parents[1]

# A program that takes long to import, in place of meshtf's, which would take seconds.
SLOW = """
import sys
import types

sys.modules["meshtf"] = meshtf = types.ModuleType("meshtf")
meshtf.__path__ = [{folder!r}]
from meshtf_programs.start import train
train()
"""


def started(folder: Path, module: str, *arguments: str) -> subprocess.Popen[str]:
    """`meshtf-train`, where this is the text of its module."""
    write_program(folder, module)
    command = [sys.executable, "-c", SLOW.format(folder=str(folder)), f"--gin_file={folder}/x.gin", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@contextlib.contextmanager
def sigint(handler: Any) -> Iterator[None]:
    """Sets how this process handles SIGINT. A process that is started meanwhile ignores it if this one does."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def write_program(folder: Path, module: str) -> None:
    (folder / "bin").mkdir()
    (folder / "bin" / "__init__.py").touch()
    (folder / "bin" / "train.py").write_text(module)
    (folder / "x.gin").touch()


def test_every_console_script_starts_without_tensorflow() -> None:
    scripts = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]["scripts"]
    ours = {target.removeprefix("meshtf_programs.start:") for target in scripts.values()}
    assert {"train", "evaluate", "decode", "export", "plan", "probe", "vocab", "checkpoint", "import_gin"} <= ours
    for module in Path(meshtf_programs.__file__).parent.glob("*.py"):
        imports = [node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.Import)]
        assert not {alias.name for node in imports for alias in node.names} & {"tensorflow", "meshtf", "numpy", "absl"}


@pytest.mark.parametrize(("number", "status", "words"), [
    (signal.SIGINT, 130, "meshtf-train: error: interrupted\n"),
    (signal.SIGTERM, 143, ""),
])  # fmt: skip
def test_a_signal_during_the_import_ends_it_without_a_traceback(
    number: int, status: int, words: str, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    module = f"import os, time\nos.write(2, b'I0000 noise')\nopen({str(ready)!r}, 'w')\ntime.sleep(1000)\n"
    with sigint(signal.default_int_handler):  # the tests themselves may have been started in the background
        process = started(tmp_path, module)
    while not ready.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(number)
    _, error = process.communicate(timeout=500)
    assert (process.returncode, error) == (status, words)


def test_a_signal_that_is_ignored_does_not_end_the_import(tmp_path: Path) -> None:
    module = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\ndef run():\n    print('done')\n"
    with sigint(signal.SIG_IGN):
        process = started(tmp_path, module)
    assert process.communicate(timeout=500) == ("done\n", "")


@pytest.mark.parametrize(("arguments", "noise"), [((), ""), (("--tensorflow_logs",), "I0000 noise\n")])
def test_the_logs_are_shown_when_they_are_asked_for(arguments: tuple[str, ...], noise: str, tmp_path: Path) -> None:
    module = """
import os
os.write(2, b"I0000 noise\\n")
def run():
    os.write(2, b"mine\\n")
    print(os.environ.get("TF_CPP_MIN_LOG_LEVEL"))
"""
    output, error = started(tmp_path, module, *arguments).communicate(timeout=500)
    assert error == f"{noise}mine\n"
    assert output == ("None\n" if arguments else "2\n")


def test_an_import_that_fails_shows_what_was_written(tmp_path: Path) -> None:
    process = started(tmp_path, "import os\nos.write(2, b'E0000 no library\\n')\nraise ImportError('no library')\n")
    _, error = process.communicate(timeout=500)
    assert process.returncode == 1
    assert error.startswith("E0000 no library\n")
    assert "ImportError: no library" in error


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_end_no_program(closed: str, tmp_path: Path) -> None:
    """Each file that is opened would get the number of a closed stream."""
    module = f"""
import pathlib
def run():
    print("said")
    pathlib.Path({str(tmp_path / "done")!r}).touch()
"""
    write_program(tmp_path, module)
    command = [sys.executable, "-c", SLOW.format(folder=str(tmp_path)), f"--gin_file={tmp_path}/x.gin"]
    subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *command], check=True, capture_output=True, timeout=500)
    assert (tmp_path / "done").exists()


def test_a_character_that_the_output_lacks_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    process = started(tmp_path, 'def run():\n    print("written to: runs/\\u65e5 \\udcff")\n')
    assert process.communicate(timeout=500) == ("written to: runs/\\u65e5 \\udcff\n", "")
    assert process.returncode == 0
