"""Names in the code are the field's words, as those of sentences are (`tests/english`)."""

from __future__ import annotations

import re
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]

INSTEAD = {
    "abreast": "vectorized",
    "stretch": "range, block or segment",
    "whereabouts": "monitor",
}

HOME_MADE = re.compile(rf"\w*({'|'.join(INSTEAD)})\w*", re.IGNORECASE)


def home_made(text: str) -> list[str]:
    return sorted({match.group(0) for match in HOME_MADE.finditer(text)})


def test_names_are_the_fields_words() -> None:
    files = [file for room in ("meshtf", "layers", "models", "gin_configs") for file in (TREE / room).rglob("*.*")]
    texts = {file: file.read_text() for file in files if file.suffix in (".py", ".md", ".gin")}
    assert len(texts) > 500
    found = {str(file.relative_to(TREE)): names for file, text in texts.items() if (names := home_made(text))}
    assert not found, f"write instead: {INSTEAD}"


def test_a_home_made_name_is_found() -> None:
    assert home_made("for x in read_stretches(layersAbreast): ...") == ["layersAbreast", "read_stretches"]
