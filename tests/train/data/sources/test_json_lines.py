from __future__ import annotations

import json
from pathlib import Path

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import JsonLines


def contents(path: Path, **options: str) -> list[str]:
    return [document.content.decode() for document in JsonLines(str(path), **options).documents()]


def test_texts_in_the_order_of_files_and_lines(tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"text": "three\\u00e9\\n"}\n')
    (tmp_path / "a.jsonl").write_text('{"text": "one", "id": 1}\n\n{"text": " "}\r\n{"id": 2, "text": "two"}')
    assert contents(tmp_path / "*.jsonl") == ["one", "two", "three\u00e9\n"]
    names = [document.name for document in JsonLines(str(tmp_path / "a.jsonl")).documents()]
    assert names == [f"{tmp_path / 'a.jsonl'}, line 1", f"{tmp_path / 'a.jsonl'}, line 4"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"line 2 is no JSON: "),
        ('{"body": "x"}', r'line 2 has no key "text", only body.*\nJsonLines\.feature says'),
        ("[1]", r'line 2 has no key "text", only none at all'),
        ('{"text": 3}', r'line 2: what "text" holds is no text: 3'),
    ],
)
def test_lines_that_are_none(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "one"}) + "\n" + line + "\n")
    with pytest.raises(ConfigurationError, match=message):
        contents(tmp_path / "a.jsonl")


def test_another_key(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "x"}\n')
    assert contents(tmp_path / "a.jsonl", feature="body") == ["x"]
