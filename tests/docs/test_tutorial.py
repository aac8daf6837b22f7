"""The tutorial executes, and prints what is stored in it.

After a change: `jupyter execute --inplace docs/tutorial.ipynb`, and take out what went to standard error.
"""

from __future__ import annotations

import copy
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from pages import TREE

TUTORIAL = TREE / "docs" / "tutorial.ipynb"


def test_the_tutorial_executes_and_prints_what_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    stored = nbformat.read(TUTORIAL, as_version=4)
    notebook = copy.deepcopy(stored)
    NotebookClient(notebook, kernel_name="python3", timeout=150, resources={"metadata": {"path": tmp_path}}).execute()
    for executed, expected in zip(notebook.cells, stored.cells, strict=True):
        assert printed(executed) == printed(expected), expected.source
        assert drawn(executed) == drawn(expected), expected.source


def printed(cell: Mapping[str, Any]) -> str:
    """What a cell wrote, with no numbers, since digits beyond rounding differ, and no runs of spaces."""
    outputs = cell.get("outputs", ())
    text = "".join(output["text"] for output in outputs if output.get("name") == "stdout")
    return re.sub(r"\s+", " ", re.sub(r"\d[\d.,]*", "#", text))


def drawn(cell: Mapping[str, Any]) -> list[list[str]]:
    """The kinds of what a cell shows beside that."""
    return [sorted(output["data"]) for output in cell.get("outputs", ()) if "data" in output]
