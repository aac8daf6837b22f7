"""The configurations that meshtf brings along, found without importing meshtf, which would import TensorFlow."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path


@functools.cache
def packaged_folder() -> Path:
    """Where they are.

    Raises:
      ModuleNotFoundError: meshtf is not installed.
    """
    (folder,) = _folders_of("meshtf.gin_configs", _folders_of("meshtf"))
    return Path(folder)


def recipe_file(name: str) -> Path:
    """The file of a recipe, which says how any model of a kind is laid out."""
    return packaged_folder() / "recipes" / f"{name}.gin"


def recipes() -> dict[str, str]:
    """By name, what each recipe is: the first line of its file."""
    files = sorted(path for path in (packaged_folder() / "recipes").glob("*.gin"))
    return {file.stem: file.read_text().partition("\n")[0].removeprefix("# ") for file in files}


def _folders_of(package: str, parent: Sequence[str] | None = None) -> list[str]:
    """Of an installed package, as the import system finds it: `importlib.util.find_spec` would import its parent."""
    for finder in sys.meta_path:
        spec = finder.find_spec(package, parent) if hasattr(finder, "find_spec") else None
        if spec is not None and spec.submodule_search_locations is not None:
            return list(spec.submodule_search_locations)
    raise ModuleNotFoundError(f"{package} is not installed", name=package)
