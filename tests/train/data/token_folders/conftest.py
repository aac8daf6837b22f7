"""Tasks whose tokens are in a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from meshtf.train.data import ByteVocabulary, JsonLines, LanguageModel, TextTask
from meshtf.train.data.sources.document import Source


@pytest.fixture
def lines(tmp_path: Path, many_texts: Source) -> Path:
    """The texts as JSON lines."""
    path = tmp_path / "texts.jsonl"
    path.write_bytes(b"".join(b'{"text": "%s"}\n' % document.content for document in many_texts.documents()))
    return path


@pytest.fixture
def task(lines: Path, tmp_path: Path) -> Callable[..., TextTask]:
    def made(**options: object) -> TextTask:
        given = {"length": 32, "held_out": 0.3, "tokens": str(tmp_path / "tokens")} | options
        return TextTask(JsonLines(str(lines)), ByteVocabulary(extra_ids=100), LanguageModel(), **given)

    return made
