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
NEEDED = ("docs/", ".md", ".ipynb")
"""One of these is in what names a page, so that files without any of them are not parsed."""
DATA = (".gin", ".toml", ".html", ".css", ".js")


def named_pages(path: Path) -> Iterator[str]:
    """The pages that a user may read of in a file, with their lines: in strings and docstrings, or all of its data."""
    source = path.read_text() if path.suffix in (".py", *DATA) else ""
    if not any(needed in source for needed in NEEDED):
        return
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield from (f"{path}:{node.lineno}: {match[0]}" for match in PAGE.finditer(node.value))
    else:
        yield from (f"{path}: {match[0]}" for match in PAGE.finditer(source))


def test_nothing_names_a_page() -> None:
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
    assert {path.suffix for path in paths} >= {".py", *DATA}
    found = [place for path in paths for place in named_pages(path)]
    assert not found, "\n".join(found)


def test_pages_are_recognized(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('# docs/a.md\ndef f():\n    """See docs/a.md."""\n    return "in " "READ" "ME.md"\n')
    (tmp_path / "b.css").write_text("/* docs/b.md */")
    found = [place.partition(".")[2] for name in ("a.py", "b.css") for place in named_pages(tmp_path / name)]
    assert found == ["py:3: docs/a.md", "py:4: README.md", "css: docs/b.md"]
    for text in ("see docs/data.md for more", "docs/extending/operation.md", "in README.md.", "docs/tutorial.ipynb"):
        assert PAGE.search(text), text
    assert not PAGE.search("cloud.google.com/tpu/docs/v4: 275 TFLOPS")


def test_readme_names_every_program() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    rows = re.findall(r"^\| `(meshtf-[\w-]+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(scripts)
