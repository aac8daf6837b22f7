"""The configurations that come with meshtf. They are found without importing meshtf, which would import TensorFlow."""

from __future__ import annotations

import functools
import itertools
import os
import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from meshtf_programs.nearest import nearest
from meshtf_programs.user_paths import user_path

_LINE, _LEAST_REMARK = 118, 20


@functools.cache
def packaged_folder() -> Path:
    """Returns the folder of meshtf's configurations.

    Raises:
      ModuleNotFoundError: if meshtf is not installed.
    """
    (folder,) = _folders_of("meshtf.gin_configs", _folders_of("meshtf"))
    return Path(folder)


def gin_file_choices(name: str) -> list[Path]:
    """Returns the files that the name of a configuration may mean: one that comes with meshtf, and one by its path.

    Raises:
      UserPathError: if there is no user of the name behind `~`.
    """
    by_path = user_path(name)
    own = [] if by_path.is_absolute() or name.startswith((".", "~")) else [packaged_folder() / name]
    return [path for path in [*own, by_path] if os.path.isfile(path)]  # Path.is_file raises if the name is too long


def no_gin_file(name: str) -> str:
    """Returns the message on a missing gin file."""
    names = sorted(path.name for path in packaged_folder().glob("*.gin"))
    folder = user_path(name).parent
    beside = sorted(str(folder / path.name) for path in folder.glob("*.gin"))
    return (
        f'there is no gin file "{name}"{nearest(name, [*beside, *names])}\n'
        f"meshtf's own are: {', '.join(names)}. Any other is given by its path; the current folder is {Path.cwd()}."
    )


def origin_of_line(file: Path, line: int) -> str:
    """Returns the place of a line, as messages show it."""
    return f"{file.name if file.is_relative_to(packaged_folder()) else shown(file)}:{line}"


def shown(path: Path) -> str:
    """Returns the path relative to the current folder, if it is inside."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def recipe_file(name: str) -> Path:
    """Returns the file of a recipe: a layout for all models of one kind."""
    return packaged_folder() / "recipes" / f"{name}.gin"


def recipes() -> dict[str, str]:
    """Returns the description of each recipe, the first line of its file, by name."""
    files = sorted(path for path in (packaged_folder() / "recipes").glob("*.gin"))
    return {file.stem: file.read_text().partition("\n")[0].removeprefix("# ") for file in files}


def listed_configurations(own_folder: Path) -> str:
    """Lists the gin files of this folder and those that come with meshtf, one on each line.

    A line has the name, the file's description of itself, and the files that it includes.
    """
    own = sorted(path for path in own_folder.glob("*.gin") if path.is_file())
    brought_along = [path for path in sorted(packaged_folder().glob("*.gin")) if path not in own]
    width = max(len(path.name) for path in [*own, *brought_along])
    return "".join(f"{_listed(path, width)}\n" for path in [*own, *brought_along])


def _listed(path: Path, width: int) -> str:
    text = path.read_text(errors="replace")
    remarks = itertools.takewhile(lambda line: line.startswith("# "), text.splitlines())
    includes = re.findall(r"""^include\s+['"](.+?)['"]""", text, re.MULTILINE)
    after = f"  (from {', '.join(includes)})" if includes else ""
    about = " ".join(line.removeprefix("# ") for line in remarks)
    shown = textwrap.shorten(about, max(_LEAST_REMARK, _LINE - width - len(after)), placeholder=" ...")
    return f"{path.name:<{width}}  {shown}{after}".rstrip()


def _folders_of(package: str, parent: Sequence[str] | None = None) -> list[str]:
    """Returns the folders of an installed package, as the import system finds it.

    `importlib.util.find_spec` would import its parent.
    """
    for finder in sys.meta_path:
        spec = finder.find_spec(package, parent) if hasattr(finder, "find_spec") else None
        if spec is not None and spec.submodule_search_locations is not None:
            return list(spec.submodule_search_locations)
    raise ModuleNotFoundError(f"{package} is not installed", name=package)
