"""Where prompts come from, and what is said of those that are no text."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.decoding.prompt_text import given_texts


def test_prompts_then_lines_of_files(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_bytes("één\r\n\nlast".encode())
    found = given_texts(["a\nb"], [path], io.BytesIO(b"never read"))
    assert [text.text for text in found] == ["a\nb", "één", "", "last"]
    assert str(found[1]) == f"line 1 of {path} ('één')"
    assert [text.text for text in given_texts([], [], io.BytesIO(b"x\ny\n"))] == ["x", "y"]


def test_prompts_with_a_mark_or_compressed(tmp_path: Path) -> None:
    lines = "één\r\ntwo\n"
    for content in (lines.encode("utf-8-sig"), lines.encode("utf-16"), gzip.compress(lines.encode())):
        path = tmp_path / "prompts"
        path.write_bytes(content)
        for found in (given_texts([], [path], io.BytesIO()), given_texts([], [], io.BytesIO(content))):
            assert [text.text for text in found] == ["één", "two"]
    assert given_texts(["\ufeffone"], [], io.BytesIO())[0].text == "one"
    for content in (b"PK\x03\x04", gzip.compress(lines.encode())[:-9], lines.encode("utf-16")[:-1]):
        with pytest.raises(ConfigurationError, match=r"standard input cannot be read as prompts: .*\nPrompts are"):
            given_texts([], [], io.BytesIO(content))


def test_no_text(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"there is no text to work on: standard input is empty. Give --prompt="
    ):
        given_texts([], [], io.BytesIO())
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigurationError, match=r"empty is empty. Give --prompt="):
        given_texts([], [tmp_path / "empty"], io.BytesIO(b"x"))


def test_bytes_that_are_no_text() -> None:
    message = "line 2 of standard input is not UTF-8: byte 0xff at column 3. Convert it"
    with pytest.raises(ConfigurationError, match=message):
        given_texts([], [], io.BytesIO(b"fine\nab\xff\n"))
    with pytest.raises(ConfigurationError, match="prompt 1 is not UTF-8: byte 0xff at column 1"):
        given_texts([os.fsdecode(b"\xff")], [], io.BytesIO())


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"the prompts in .*gone cannot be read: No such file or directory"):
        given_texts([], [tmp_path / "gone"], io.BytesIO())
