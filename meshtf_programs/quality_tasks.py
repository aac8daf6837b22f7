"""The tasks of meshtf-benchmark, found without importing meshtf, which would import TensorFlow."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from meshtf_programs.nearest import nearest
from meshtf_programs.packaged_configurations import packaged_folder

_ON_PAPER = """\

Published trainings, on paper (meshtf-plan --gin_file=NAME --machine=v3):
"""

_WIDTH = 24


def listed_tasks(_: Path) -> str:
    """Lists the tasks, each with its target and its file's description, and the published trainings."""
    folder = packaged_folder() / "quality"
    tasks = "".join(f"{_line(path.stem, _target(path), path)}\n" for path in sorted(folder.glob("*.gin")))
    on_paper = sorted((folder / "on_paper").glob("*.gin"))
    return tasks + _ON_PAPER + "".join(f"{_line(f'quality/on_paper/{path.name}', '', path)}\n" for path in on_paper)


def task_file(name: str) -> str:
    """Returns the gin file of a task. `name` is a name from the list, or a path.

    Raises:
      ValueError: if there is no such task. The message proposes the nearest name.
    """
    if name.endswith(".gin"):
        return name
    known = sorted(path.stem for path in (packaged_folder() / "quality").glob("*.gin"))
    if name not in known:
        raise ValueError(f'there is no task "{name}"{nearest(name, known)}\nThere are {", ".join(known)}.')
    return f"quality/{name}.gin"


def _line(name: str, target: str, path: Path) -> str:
    remarks = itertools.takewhile(lambda line: line.startswith("# "), path.read_text().splitlines())
    about = " ".join(line.removeprefix("# ") for line in remarks)
    return f"{name:<{_WIDTH}}  {target:<22}{about}" if target else f"{name:<{_WIDTH + 12}}  {about}"


def _target(path: Path) -> str:
    """Returns text such as `accuracy >= 0.985`."""
    text = path.read_text()
    found = {
        name: re.search(rf"^QualityTarget\.{name} = (.+)$", text, re.MULTILINE) for name in ("metric", "value", "mode")
    }
    metric, value, mode = (match.group(1).strip("\"'") if match else "" for match in found.values())
    return f"{metric} {'<=' if mode == 'min' else '>='} {value}"
