"""Files whose names say that they are compressed."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pyarrow
import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import JsonLines, TextFiles
from meshtf.train.data.sources.document import Source

TEXT = b'{"text": "one"}\n{"text": "two"}\n' * 500


def write(path: Path, cut: int | None = None) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(TEXT, mtime=0)[:cut])
    else:
        with pyarrow.CompressedOutputStream(str(path), "zstd") as file:
            file.write(TEXT)
        path.write_bytes(path.read_bytes()[:cut])
    return path


def contents(source: Source) -> list[bytes]:
    return [document.content for document in source.documents()]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_text_is_decompressed(tmp_path: Path, suffix: str) -> None:
    path = str(write(tmp_path / f"a.jsonl{suffix}"))
    assert contents(JsonLines(path)) == [b"one", b"two"] * 500
    assert contents(TextFiles(path, document="line")) == TEXT.split(b"\n")[:-1]
    assert contents(TextFiles(path)) == [TEXT]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_file_that_is_cut_short_or_none(tmp_path: Path, suffix: str) -> None:
    cut = write(tmp_path / f"a{suffix}", cut=-9)
    with pytest.raises(ConfigurationError, match=rf"a\{suffix} cannot be read: .*\nIt is damaged, or not compressed"):
        contents(TextFiles(str(cut)))
    (tmp_path / f"b{suffix}").write_bytes(b"plain text")
    with pytest.raises(ConfigurationError, match=rf"b\{suffix} cannot be read: .*\nIt is damaged, or not compressed"):
        contents(TextFiles(str(tmp_path / f"b{suffix}"), document="line"))


def test_pyarrow_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.zst")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigurationError, match=r"a\.zst, which zstd compressed.*\n.*pip install 'meshtf\[arrow\]'"):
        contents(TextFiles(str(path)))
