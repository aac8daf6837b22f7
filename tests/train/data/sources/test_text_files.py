from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import TextFiles
from meshtf.train.data.sources import _compressed
from meshtf.train.data.sources.document import Source


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b" / "deep").mkdir(parents=True)
    (tmp_path / "b" / "deep" / "2.txt").write_bytes(b"one\r\ntwo\n\n \n\nthree\nfour\n")
    (tmp_path / "a.txt").write_bytes(b"\tfirst\n")
    (tmp_path / "blank.txt").write_bytes(b" \n")
    monkeypatch.chdir(tmp_path)


def contents(patterns: str | Sequence[str], document: str = "file") -> list[bytes]:
    return [document.content for document in TextFiles(patterns, document).documents()]


def test_files_are_documents_in_the_order_of_their_paths() -> None:
    assert isinstance(TextFiles("**/*.txt"), Source)
    assert contents("**/*.txt") == [b"\tfirst\n", b"one\r\ntwo\n\n \n\nthree\nfour\n"]


def test_a_file_that_matches_twice_is_read_once() -> None:
    assert contents(["a.txt", "*.txt"]) == [b"\tfirst\n"]


def test_lines_and_paragraphs() -> None:
    assert contents("b/**/*.txt", "line") == [b"one", b"two", b"three", b"four"]
    assert contents("b/**/*.txt", "paragraph") == [b"one\r\ntwo", b"three\nfour"]
    Path("crlf.txt").write_bytes(b"\r\none\r\ntwo\r\n\r\n \r\nthree\r\n")
    assert contents("crlf.txt", "paragraph") == [b"one\r\ntwo", b"three"]
    assert contents("crlf.txt", "line") == [b"one", b"two", b"three"]


def test_names_say_where_a_document_is_from() -> None:
    assert [document.name for document in TextFiles("b/deep/*", "line").documents()][-1] == "b/deep/2.txt, line 7"
    assert [document.name for document in TextFiles("a.txt").documents()] == ["a.txt"]


def test_a_file_of_exactly_that_name_wins() -> None:
    for name in ("data[1].txt", "data1.txt", "odd [2]/x?.txt", "odd [2]/xy.txt"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(name)
    for pattern, names in {
        "data[1].txt": ["data[1].txt"],
        f"{Path.cwd()}/data[1].txt": ["data[1].txt"],
        "data[12].txt": ["data1.txt"],
        "odd [2]/x?.txt": ["odd [2]/x?.txt"],
        "odd [2]/*": ["odd [2]/x?.txt", "odd [2]/xy.txt"],
        "odd*/x*": ["odd [2]/x?.txt", "odd [2]/xy.txt"],
    }.items():
        assert contents(pattern) == [name.encode() for name in names]


def test_no_file_matches() -> None:
    with pytest.raises(ConfigurationError) as caught:
        contents(["*.text", "books/*"])
    assert 'no file matches "*.text" or "books/*"' in str(caught.value)
    assert str(Path.cwd()) in str(caught.value)


def test_a_file_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> BinaryIO:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(_compressed, "open_regular", refuse)
    with pytest.raises(ConfigurationError, match=r"the text file a\.txt cannot be read: .*Permission denied"):
        contents("a.txt")


@pytest.mark.parametrize(("kind", "words"), [("pipe", "a named pipe"), ("device", "a device")])
def test_what_is_no_file_is_not_waited_for(kind: str, words: str) -> None:
    if kind == "pipe":
        os.mkfifo("c.txt")
    else:
        Path("c.txt").symlink_to("/dev/zero")
    with pytest.raises(ConfigurationError, match=rf"c\.txt matches, but is {words}, not a file; move it"):
        contents("*.txt")


def test_a_file_that_no_memory_takes() -> None:
    Path("a.txt").touch()
    os.truncate("a.txt", 2**43)  # a hole, that takes no room on the disk
    with pytest.raises(ConfigurationError, match=r"a\.txt has 8,796,093,022,208 bytes, too many for memory; split it"):
        contents("a.txt")


def test_an_unknown_kind_of_document() -> None:
    with pytest.raises(ConfigurationError, match=r"must be one of \"file\".*'lines'; did you mean \"line\"\?"):
        TextFiles("*.txt", "lines")
