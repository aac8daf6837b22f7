"""The tables of docs/names_from_elsewhere.md point to what is there, and have every name of the other libraries.

The other libraries' names are stored, because a new version of one of them is no fault of the page.
"""

from __future__ import annotations

import operator
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import meshtf as mtf

PAGE = Path(__file__).resolve().parents[2] / "docs" / "names_from_elsewhere.md"
STORED = tomllib.loads(Path(__file__).with_name("names_elsewhere.toml").read_text())
SECTIONS = {"jax.nn": "jax_nn", "jax.numpy": "jax_numpy", "Keras layers": "keras_layers", "Haliax": "haliax"}
WORDS = {"has", "other name", "does not fit", "missing"}


def rows(section: str = "") -> Iterator[tuple[list[str], str, str]]:
    """The names, the word and the place of each row of a section's table, or of all tables of names."""
    text = PAGE.read_text()
    if section:
        text = text.partition(f"## {section}\n")[2].partition("\n## ")[0]
    for names, word, here in re.findall(r"^\| (`.*`) \| ([a-z ]+) \| ?(.*?) ?\|$", text, re.MULTILINE):
        yield re.findall(r"`([\w.]+)`", names), word, here


def test_every_place_exists() -> None:
    found = [name for _, _, here in rows() for name in re.findall(r"\bmtf\.([a-zA-Z_][\w.]*\w)", here)]
    assert {"reduce_variance", "layers.gru", "einsum"} <= set(found)
    for name in found:
        operator.attrgetter(name)(mtf)


def test_every_row_has_a_known_word() -> None:
    assert {word for _, word, _ in rows()} == WORDS


@pytest.mark.parametrize("section", SECTIONS)
def test_every_name_has_one_row(section: str) -> None:
    counts = Counter(name for names, _, _ in rows(section) for name in names)
    assert sorted(set(STORED[SECTIONS[section]].split()) - set(counts)) == []
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("section", ["jax.nn", "jax.numpy"])
def test_what_is_said_to_be_here_is(section: str) -> None:
    same = [name for names, word, _ in rows(section) if word == "has" for name in names]
    assert len(same) > 20
    assert [name for name in same if name not in mtf.__all__] == []
    others = [name for names, word, _ in rows(section) if word == "missing" for name in names]
    assert [name for name in others if name in mtf.__all__] == []
