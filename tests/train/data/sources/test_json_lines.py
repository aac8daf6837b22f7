from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ByteVocabulary, JsonLines, LanguageModel
from meshtf.train.data._tokenized_text import TextReader


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
        ('{"text": 3}', r'line 2: "text" holds no text: 3'),
    ],
)
def test_lines_that_are_none(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "one"}) + "\n" + line + "\n")
    with pytest.raises(ConfigurationError, match=message):
        contents(tmp_path / "a.jsonl")


def test_another_key(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"body": "x"}\n')
    assert contents(tmp_path / "a.jsonl", feature="body") == ["x"]


def test_a_line_that_is_no_text_is_told_of_or_left_out(tmp_path: Path) -> None:
    """A byte of Windows-1252, and what Python's reader of JSON would take for UTF-16."""
    lines = [b'{"text": "caf\xe9"}', '{"text": "x"}'.encode("utf-16-le"), b'{"text": "fine"}']
    (tmp_path / "a.jsonl").write_bytes(b"\n".join([lines[0], lines[2]]))
    source = JsonLines(str(tmp_path / "a.jsonl"))
    reader = TextReader(ByteVocabulary(), LanguageModel(), skip_undecodable=False)
    with pytest.raises(ConfigurationError, match=r"a\.jsonl, line 1 is not UTF-8: byte 13 is 0xe9"):
        reader.read_shard(source, 0.0)
    read = dataclasses.replace(reader, skip_undecodable=True).read_shard(source, 0.0)
    assert (read.num_skipped, read.sides[False].num_documents) == (1, 1)
    (tmp_path / "a.jsonl").write_bytes(lines[1])
    with pytest.raises(ConfigurationError, match=r"line 1 is no JSON"):
        contents(tmp_path / "a.jsonl")
