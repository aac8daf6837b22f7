"""Files that are compressed, or in another encoding, as their content says."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
from pathlib import Path

import pyarrow
import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import JsonLines, TextFiles
from meshtf.train.data.sources.document import Source

TEXT = b'{"text": "one"}\n{"text": "two"}\n' * 500
SUFFIXES = [".gz", ".GZ", ".bz2", ".xz", ".zst", ".txt"]


def write(path: Path, cut: int | None = None) -> Path:
    compress = {".bz2": bz2.compress, ".xz": lzma.compress}.get(path.suffix, gzip.compress)
    if path.suffix != ".zst":
        path.write_bytes(compress(TEXT)[:cut])
    else:
        with pyarrow.CompressedOutputStream(str(path), "zstd") as file:
            file.write(TEXT)
        path.write_bytes(path.read_bytes()[:cut])
    return path


def contents(source: Source) -> list[bytes]:
    return [document.content for document in source.documents()]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_text_is_decompressed(tmp_path: Path, suffix: str) -> None:
    path = str(write(tmp_path / f"a.jsonl{suffix}"))
    assert contents(JsonLines(path)) == [b"one", b"two"] * 500
    assert contents(TextFiles(path, document="line")) == TEXT.split(b"\n")[:-1]
    assert contents(TextFiles(path)) == [TEXT]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_is_cut_short_or_none(tmp_path: Path, suffix: str) -> None:
    cut = write(tmp_path / f"a{suffix}", cut=-9)
    with pytest.raises(ConfigurationError, match=rf"a\{suffix} cannot be read: .*\nIt is damaged or cut short"):
        contents(TextFiles(str(cut)))
    if suffix == ".txt":
        return
    (tmp_path / f"b{suffix}").write_bytes(b"plain text")
    with pytest.raises(ConfigurationError, match=rf"b\{suffix} cannot be read as text: its content is not compressed"):
        contents(TextFiles(str(tmp_path / f"b{suffix}"), document="line"))


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\x03\x04 and so on")
    for source in (TextFiles(str(tmp_path / "*")), JsonLines(str(tmp_path / "*"))):
        with pytest.raises(ConfigurationError, match=r"a\.zip cannot be read as text: .* a zip archive.*\nUnpack it"):
            contents(source)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_no_mark_is_in_the_first_document(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a").write_bytes(TEXT.decode().replace("\n", "\r\n").encode(encoding))
    path = str(tmp_path / "a")
    assert contents(JsonLines(path)) == [b"one", b"two"] * 500
    assert contents(TextFiles(path, document="line")) == TEXT.split(b"\n")[:-1]
    assert contents(TextFiles(path)) == [TEXT.replace(b"\n", b"\r\n")]


def test_pyarrow_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.zst")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigurationError, match=r"a\.zst, which zstd compressed.*\n.*pip install 'meshtf\[arrow\]'"):
        contents(TextFiles(str(path)))
