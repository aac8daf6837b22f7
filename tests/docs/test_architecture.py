"""What docs/architecture.md and its picture name is where they say."""

from __future__ import annotations

import re

import pytest
from pages import TREE

# A file or, with a stroke at its end, a folder.
PLACE = re.compile(r"[\w/]+(?:\.py|\.md|\.toml|/)(?![\w/])")
ROOMS = [TREE / "meshtf", TREE, TREE / "meshtf" / "lowering"]


def places_of(page: str) -> list[str]:
    """Those in code of a page, and in texts of a picture."""
    texts = re.findall(r"`([^`\n]+)`|>([^<]+)<", (TREE / "docs" / page).read_text())
    return [place for pair in texts for text in pair for place in PLACE.findall(text)]


@pytest.mark.parametrize(("page", "number"), [("architecture.md", 30), ("architecture.svg", 10)])
def test_every_place_is_there(page: str, number: int) -> None:
    places = places_of(page)
    assert len(places) >= number
    assert [place for place in places if not any((room / place).exists() for room in ROOMS)] == []
