"""The numbers that were fitted to a machine stand in one file, few, each with its reason and its use."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path

from meshtf import thresholds
from meshtf.lowering.passes.pass_options import PassOptions

TREE = Path(__file__).resolve().parents[2]
MOST_FITTED = 10

# Bounds on memory, and choices of the user and of the backend.
NOT_FITTED = {"bucket_bytes", "most_bytes_ahead", "most_instructions"}


def _assignments() -> list[tuple[ast.Assign, ast.stmt | None]]:
    body = ast.parse(Path(thresholds.__file__).read_text()).body
    pairs = zip(body, [*body[1:], None], strict=True)
    return [(node, after) for node, after in pairs if isinstance(node, ast.Assign)]


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def test_at_most_ten_are_fitted_and_the_others_follow_from_them() -> None:
    fitted = [node for node, _ in _assignments() if not _names(node.value)]
    assert 0 < len(fitted) <= MOST_FITTED, [ast.unparse(node) for node in fitted]


def test_each_has_a_reason() -> None:
    without = [
        ast.unparse(node)
        for node, after in _assignments()
        if not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant))
    ]
    assert not without


def test_each_is_used() -> None:
    files = [*TREE.glob("meshtf/**/*.py"), *TREE.glob("layers/**/*.py")]
    texts = [text for file in files if file != Path(thresholds.__file__) and "thresholds" in (text := file.read_text())]
    unused = [name for name in vars(thresholds) if name.isupper() and not any(name in text for text in texts)]
    assert not unused


def test_the_passes_have_no_sizes_of_their_own() -> None:
    fitted = {value for name, value in vars(thresholds).items() if name.isupper()}
    numbers = {f.name: f.default for f in dataclasses.fields(PassOptions) if type(f.default) is int}
    assert {name for name, number in numbers.items() if number not in fitted} == NOT_FITTED
