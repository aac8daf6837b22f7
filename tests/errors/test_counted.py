"""Numbers of things in words: "1 text", and never "1 texts"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshtf.errors import counted

ROOT = Path(__file__).parents[2]
FOLDERS = ("meshtf", "meshtf_programs", "layers", "models")
NOUNS = (
    r"(texts|documents|tokens|examples|held-out examples|tensors|gradients|processes|inputs|arguments|files|prompts|"
    r"variables|parameters|values|lines|rows|evaluations|checkpoints|devices|ids)\b"
)
PLURALS = re.compile(f" {NOUNS}")
AFTER_A_VALUE = re.compile(rf"""}}[\s"'frFR\\]* {NOUNS}""")
"""Where an f-string may have a value before a noun, perhaps in two pieces. Files without this are not parsed."""

NEVER_ONE = {
    "{SMALLEST_SIZE}",
    "{array.dtype.name}",
    "{count:,}' tokens into",
    "{devices}' devices; each",
    "{prediction.tokens_per_second:,.0f}",
    "{self.tokens_per_step:.2f}",
    "{lengths[first].tolist()}",
    "{len(set(processes))}",
    "{report.processes}",
    "{self.processes}",
    "{processes}' processes has",
    "{number}' processes",
    "{num_devices}' devices are",
    "{self._waited}' evaluations",
    "{len(present)}' processes",
    "{len(hosts)}",
    "{len(found.addresses)}",
}
"""Beginnings of what may stand there: no numbers, or two or more; or another text stands where it is one."""


@pytest.mark.parametrize(
    ("n", "words"), [(0, "0 texts"), (1, "1 text"), (2, "2 texts"), (1000, "1,000 texts"), (-1, "-1 texts")]
)
def test_counted(n: int, words: str) -> None:
    assert counted(n, "text") == words


def test_other_plurals() -> None:
    assert (counted(1, "process", "processes"), counted(2, "process", "processes")) == ("1 process", "2 processes")


def uncounted() -> Iterator[str]:
    for path in (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))):
        name, source = path.relative_to(ROOT).as_posix(), path.read_text()
        tree = ast.parse(source) if AFTER_A_VALUE.search(source) else ast.Module([], [])
        for node in (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)):
            for value, after in zip(node.values, node.values[1:], strict=False):
                is_text = isinstance(after, ast.Constant) and PLURALS.match(str(after.value))
                if is_text and isinstance(value, ast.FormattedValue):
                    found = f"{ast.unparse(ast.JoinedStr([value]))[2:-1]}{after.value!r}"
                    if not found.startswith(tuple(NEVER_ONE)):
                        yield f"{name}:{node.lineno}: {found}"


def test_messages_count_with_it() -> None:
    assert not list(uncounted()), "\n".join(uncounted())
