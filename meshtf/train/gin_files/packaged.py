"""The configurations that meshtf brings along."""

from __future__ import annotations

import importlib.resources
from pathlib import Path


def packaged_folder() -> Path:
    """Where they are."""
    return Path(str(importlib.resources.files("meshtf.gin_configs")))


def recipe_file(name: str) -> Path:
    """The file of a recipe, which says how any model of a kind is laid out."""
    return packaged_folder() / "recipes" / f"{name}.gin"


def recipes() -> dict[str, str]:
    """By name, what each recipe is: the first line of its file."""
    files = sorted(path for path in (packaged_folder() / "recipes").glob("*.gin"))
    return {file.stem: file.read_text().partition("\n")[0].removeprefix("# ") for file in files}
