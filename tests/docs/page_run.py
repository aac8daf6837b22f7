"""Runs the blocks of a page in what a freshly started interpreter would be.

A page is a process that has imported meshtf's rooms and done nothing else, and so is each of its commands. A shell
runs those of blocks marked as long. tests/test_public_names.py shows that importing starts nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pages import Block

from meshtf.bin import checkpoint, compare, decode, eval, export, plan, train  # noqa: A004
from meshtf.bin import compile as compile_program
from tests.fresh_process import forking_context

PROGRAMS = {
    module.PROGRAM: module for module in (checkpoint, compare, compile_program, decode, eval, export, plan, train)
}


def run_page(name: str, folder: Path, blocks: Sequence[Block]) -> str:
    """The first error of a page; "" where there is none."""
    python, theirs = forking_context().Pipe()
    process = forking_context().Process(target=_interpret, args=[name, folder, theirs])
    process.start()
    theirs.close()
    errors = (f"{name}:{block.line}: {error}" for block in blocks if (error := _run_block(block, folder, python)))
    first = next(errors, "")
    python.close()
    process.join()
    return first


def _run_block(block: Block, folder: Path, python: Connection) -> str:
    if block.title is not None:
        (folder / block.title).write_text(block.text)
    elif block.language == "python":
        python.send((block.line, block.text))
        return _answer(python)
    elif block.language == "bash" and block.is_long:
        return _run_in_shell(block.text, folder)
    for words in block.commands:
        process = forking_context().Process(target=_run_command, args=[words, folder])
        process.start()
        process.join()
        if process.exitcode:
            return f"status {process.exitcode} of {' '.join(words)}"
    return ""


def _answer(python: Connection) -> str:
    try:
        return python.recv()
    except EOFError:
        return "the interpreter ended"


def _interpret(name: str, folder: Path, blocks: Connection) -> None:
    """Runs blocks in one namespace, each at its own line of the page, so that an error points there."""
    os.chdir(folder)
    names: dict[str, Any] = {"__name__": "__main__"}
    while True:
        try:
            line, text = blocks.recv()
        except EOFError:
            return
        try:
            exec(compile("\n" * (line - 1) + text, name, "exec"), names)
            blocks.send("")
        except Exception:
            blocks.send(traceback.format_exc())


def _run_command(words: Sequence[str], folder: Path) -> None:
    """Runs a program of ours, perhaps with settings of the environment in front, as its script would."""
    os.chdir(folder)
    settings = [word for word in words if "=" in word and not word.startswith("-")]
    for name, _, value in (setting.partition("=") for setting in settings):
        os.environ[name] = value
        if name == "PYTHONPATH":
            sys.path[:0] = [os.path.abspath(path) for path in value.split(os.pathsep)]
    arguments = [word for word in words if word not in settings]
    sys.exit(PROGRAMS[arguments[0]].main(arguments))


def _run_in_shell(text: str, folder: Path) -> str:
    environment = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    done = subprocess.run(
        ["bash", "-e", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    return done.stderr if done.returncode else ""
