"""The tutorial executes, and prints what is stored in it.

After a change: `jupyter execute --inplace docs/tutorial.ipynb`, and take out what went to standard error.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import nbformat
import pytest
from ipykernel.compiler import XCachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from nbclient import NotebookClient
from pages import TREE
from traitlets.config import Config

from tests.fresh_process import forking_context

TUTORIAL = TREE / "docs" / "tutorial.ipynb"


@dataclasses.dataclass(frozen=True)
class Output:
    """Of one cell: what it wrote, and the kinds of what it shows beside that."""

    text: str
    shown: list[list[str]]


class PublishedResult(DisplayHook):
    """Shows what a cell's last line gives as a kernel does, and does not print it."""

    def write_output_prompt(self) -> None:
        pass

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        self.shell.display_pub.publish(format_dict, md_dict)


def executed_in_a_shell(notebook: Any, folder: Path) -> list[Output]:
    """By the interpreter that Jupyter's kernels have, in a process that has imported meshtf."""
    outputs, theirs = forking_context().Pipe(duplex=False)
    sources = [cell.source for cell in code_cells(notebook)]
    process = forking_context().Process(target=_run_cells, args=[sources, folder, theirs])
    process.start()
    theirs.close()
    found = [outputs.recv() for _ in sources]
    process.join()
    return found


def executed_in_jupyter(notebook: Any, folder: Path) -> list[Output]:
    executed = copy.deepcopy(notebook)
    NotebookClient(executed, kernel_name="python3", timeout=500, resources={"metadata": {"path": folder}}).execute()
    return stored_outputs(executed)


@pytest.mark.parametrize("executed", [executed_in_a_shell, pytest.param(executed_in_jupyter, marks=pytest.mark.long)])
def test_the_tutorial_executes_and_prints_what_is_stored(
    executed: Callable[..., list[Output]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    notebook = nbformat.read(TUTORIAL, as_version=4)
    found = executed(notebook, tmp_path)
    for cell, output, expected in zip(code_cells(notebook), found, stored_outputs(notebook), strict=True):
        assert without_numbers(output.text) == without_numbers(expected.text), cell.source
        assert output.shown == expected.shown, cell.source


def code_cells(notebook: Any) -> Sequence[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def stored_outputs(notebook: Any) -> list[Output]:
    return [Output(_written(cell.outputs), _shown(cell.outputs)) for cell in code_cells(notebook)]


def without_numbers(text: str) -> str:
    """Nor runs of spaces: digits beyond rounding differ, and so do columns."""
    return re.sub(r"\s+", " ", re.sub(r"\d[\d.,]*", "#", text))


def _written(outputs: Sequence[Mapping[str, Any]]) -> str:
    return "".join(output["text"] for output in outputs if output.get("name") == "stdout")


def _shown(outputs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    return [sorted(output["data"]) for output in outputs if "data" in output]


def _run_cells(sources: Sequence[str], folder: Path, outputs: Connection) -> None:
    """Runs in the process, which a cell that fails ends."""
    os.chdir(folder)
    settings = Config({"HistoryManager": {"enabled": False}})
    shell = InteractiveShell.instance(config=settings, displayhook_class=PublishedResult)
    shell.compile = XCachingCompiler()  # what calls cells as a kernel does, which reports say
    for source in sources:
        with capture_output() as captured:
            done = shell.run_cell(source)
        done.raise_error()
        outputs.send(Output(captured.stdout, [sorted(output.data) for output in captured.outputs]))
