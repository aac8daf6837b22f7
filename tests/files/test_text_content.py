"""What a file holds is told by its content: text comes out as UTF-8, whole, or not at all."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sys
from collections.abc import Callable
from typing import Any

import pyarrow
import pytest

from meshtf.files.text_content import BROKEN, NoTextError, is_plain, plain_text

TEXT = "häuser \U0001f30a\n".encode() * 300
MOST = 1 << 20


def zstd(content: bytes) -> bytes:
    sink = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(sink, "zstd") as file:
        file.write(content)
    return sink.getvalue().to_pybytes()


COMPRESSIONS = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd}


def text(content: bytes, name: str = "a.txt") -> bytes:
    return plain_text(content, name, MOST)


def refused(content: bytes, name: str = "a.txt") -> bool:
    try:
        text(content, name)
    except (*BROKEN, OSError, NoTextError):
        return True
    return False


@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_what_is_compressed(compress: Callable[[bytes], bytes]) -> None:
    packed = compress(TEXT)
    assert text(packed) == TEXT  # whatever its name
    assert text(packed, "A.GZ") == TEXT
    assert text(packed + packed) == TEXT + TEXT  # as programs write that compress with several threads
    assert text(compress(packed)) == TEXT
    assert text(compress(b"")) == b""
    assert text(compress(TEXT.decode().encode("utf-16"))) == TEXT
    assert text(compress(b"") + compress(TEXT.decode().encode("utf-16"))) == TEXT
    assert text(compress(b"") + compress(packed)) == TEXT
    for cut in (1, 9, len(packed) // 2):
        assert refused(packed[:-cut])
        assert refused(packed + packed[:-cut])
    assert refused(packed + b"and more")
    beginning = bytearray(packed)
    beginning[1] ^= 255
    assert refused(packed + bytes(beginning))  # a second stream that is damaged where it begins


def test_a_mark_in_pieces() -> None:
    assert text(b"".join(gzip.compress(bytes([byte])) for byte in b"\xef\xbb\xbfx")) == b"x"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_encodings_with_a_byte_order_mark(encoding: str) -> None:
    mark = "" if encoding == "utf-8-sig" else "\ufeff"
    content = (mark + TEXT.decode()).encode(encoding)
    assert text(content) == TEXT
    assert is_plain(buffered(content)) == (encoding == "utf-8-sig")
    assert text((mark + "\ufeffx").encode(encoding)) == "\ufeffx".encode()  # one mark, and no more
    assert text(mark.encode(encoding)) == b""
    if encoding != "utf-8-sig":
        assert refused(content[:-1])


def test_what_is_no_mark() -> None:
    for content in (b"", b"\xef\xbb", b"BZh9 is a word", b"(a", TEXT):
        assert text(content) == content
        assert is_plain(buffered(content))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"PK\x03\x04 and so on", "a zip archive"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"a" * 257 + b"ustar\x00", "a tar archive"),
        (gzip.compress(b"a" * 257 + b"ustar\x00", mtime=0), "a tar archive"),
        (b"PAR1\x15\x04", "a Parquet file"),
        (b"%PDF-1.7\n", "a PDF"),
    ],
    ids=["zip", "7z", "tar", "gzipped tar", "Parquet", "PDF"],
)
def test_what_is_no_text(content: bytes, what: str) -> None:
    with pytest.raises(NoTextError, match=rf"its content is {what}, not text"):
        text(content)
    assert refused(content, "a.zip")


def test_a_name_that_promises_what_is_not_there() -> None:
    for name in ("a.gz", "a.BZ2", "a.xz", "a.zst", "a.zip"):
        with pytest.raises(NoTextError, match="not compressed, although its name says so"):
            text(b"plain text", name)
        assert refused(b"", name)


def test_no_more_than_is_asked_for() -> None:
    assert len(plain_text(gzip.compress(bytes(5_000_000)), "a", 1000)) == 1001


def test_zstd_needs_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError):
        text(b"\x28\xb5\x2f\xfd")


def buffered(content: bytes) -> io.BufferedReader:
    raw: Any = io.BytesIO(content)
    return io.BufferedReader(raw)
