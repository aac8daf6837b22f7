"""A wheel has no pages, so nothing in it sends a reader to one: objects with docstrings, flags and files are there."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("meshtf", "meshtf_programs", "layers", "models", "gin_configs")
PAGE = re.compile(r"\b(?:docs/[\w/]+\.\w+|[\w/]+\.(?:md|ipynb))\b")
DATA = (".gin", ".toml", ".html", ".css", ".js")


def texts() -> Iterator[tuple[str, str]]:
    """Places, and what a user may read there: strings and docstrings of modules, and whole files of data."""
    for path in (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.is_file()):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield f"{name}:{node.lineno}", node.value
        elif path.suffix in DATA:
            yield name, path.read_text()


def test_nothing_names_a_page() -> None:
    found = [f"{place}: {match[0]}" for place, text in texts() for match in PAGE.finditer(text)]
    assert not found, "\n".join(found)


def test_pages_are_recognized() -> None:
    for text in ("see docs/data.md for more", "docs/extending/operation.md", "in README.md.", "docs/tutorial.ipynb"):
        assert PAGE.search(text), text
    assert not PAGE.search("cloud.google.com/tpu/docs/v4: 275 TFLOPS")
    assert len(list(texts())) > 10_000


def test_readme_names_every_program() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    rows = re.findall(r"^\| `(meshtf-[\w-]+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(scripts)
