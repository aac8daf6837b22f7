"""Reads text files as UTF-8, even if they are compressed or in UTF-16, which their first bytes tell."""

from __future__ import annotations

import bz2
import codecs
import functools
import gzip
import importlib
import io
import itertools
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, BinaryIO, TypeAlias, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

COMPRESSED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst", ".zip")

BROKEN = (EOFError, zlib.error, lzma.LZMAError, UnicodeDecodeError)
"""Errors besides OSError that reading damaged content raises."""

Pieces: TypeAlias = "Iterator[bytes]"

_HEAD_BYTES, _PIECE = 512, 1 << 20

_ENCODINGS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
"""The encoding for each byte-order mark."""

_NO_TEXT = {
    b"PK\x03\x04": "a zip archive",
    b"PK\x05\x06": "a zip archive",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!\x1a\x07": "a RAR archive",
    b"\x1f\x9d": "compressed by `compress`",
    b"\x04\x22\x4d\x18": "compressed by lz4",
    b"PAR1\x15": "a Parquet file",
    b"ARROW1\x00\x00": "an Arrow file",
    b"%PDF-": "a PDF",
}
_TAR, _TAR_PLACE = b"ustar", 257


class NoTextError(ValueError):
    """A file that is not text. The message is a sentence about the file, without its name."""


def text_stream(file: io.BufferedReader, name: str) -> BinaryIO:
    """Returns the text of a file, in UTF-8 and without a byte-order mark. Compressed content is decompressed.

    For plain UTF-8, the result is `file` itself, which is seekable.

    Args:
      file: the file at its beginning.
      name: its name. A suffix of compressed files is an error if the content is not compressed.

    Raises:
      NoTextError: if the content is an archive or otherwise not text.
      ImportError: if the content is compressed with zstd, and pyarrow is not installed.
      OSError, or one of `BROKEN`: if the content is damaged. Reading the result may also raise these.
    """
    head = _head(file)
    if not _compression(head):
        if PurePath(name).suffix.lower() in COMPRESSED_SUFFIXES and not _archive(head):
            raise NoTextError("its content is not compressed, although its name says so")
        _refuse(head)
        mark, encoding = _mark(head)
        if encoding == "utf-8":
            file.seek(len(mark))
            return file
        return _stream(_transcoded(_pieces(file), mark, encoding))
    pieces = _pieces(file)
    while decompressed := _compression(head):
        head, pieces = _first(decompressed(pieces))
    _refuse(head)
    return _stream(_transcoded(pieces, *_mark(head)))


def plain_text(content: bytes, name: str, most_bytes: int) -> bytes:
    """Returns the text in `content` like `text_stream`, but at most `most_bytes` + 1 bytes of it."""
    return text_stream(io.BufferedReader(cast(io.RawIOBase, io.BytesIO(content))), name).read(most_bytes + 1)


def is_plain(file: io.BufferedReader) -> bool:
    """Tells whether the content is UTF-8 and not compressed, so that a reader can start in the middle."""
    head = _head(file)
    return not _compression(head) and _mark(head)[1] == "utf-8"


def _head(file: io.BufferedReader) -> bytes:
    head = file.read(_HEAD_BYTES)
    file.seek(0)
    return head


def _compression(head: bytes) -> Callable[[Pieces], Pieces] | None:
    """Returns a function that decompresses content with this beginning, or None."""
    if head.startswith(b"\x1f\x8b"):
        return lambda pieces: _pieces(gzip.GzipFile(fileobj=_stream(pieces)))
    if head.startswith(b"BZh") and head[4:10] in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"):  # with data, and without
        return functools.partial(_inflated, bz2.BZ2Decompressor)
    if head.startswith(b"\xfd7zXZ\x00"):
        return functools.partial(_inflated, lzma.LZMADecompressor)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _from_zstd
    return None


def _inflated(new: Callable[[], bz2.BZ2Decompressor | lzma.LZMADecompressor], pieces: Pieces) -> Pieces:
    """Yields the content of one compressed stream after another.

    BZ2File and LZMAFile would silently stop before a stream whose beginning is damaged.
    """
    machine, is_within = new(), False
    for piece in pieces:
        while piece := piece if is_within else piece.lstrip(b"\x00"):  # padding between streams
            is_within = True
            yield machine.decompress(piece, _PIECE)
            while not (machine.eof or machine.needs_input):
                yield machine.decompress(b"", _PIECE)
            piece = machine.unused_data
            if machine.eof:
                machine, is_within = new(), False
    if is_within:
        raise EOFError("it is cut short")


def _from_zstd(pieces: Pieces) -> Pieces:
    pyarrow = importlib.import_module("pyarrow")  # an optional dependency
    return _pieces(pyarrow.CompressedInputStream(_stream(pieces), "zstd"))


def _archive(head: bytes) -> str | None:
    if head[_TAR_PLACE:].startswith(_TAR):
        return "a tar archive"
    return next((what for start, what in _NO_TEXT.items() if head.startswith(start)), None)


def _refuse(head: bytes) -> None:
    if what := _archive(head):
        raise NoTextError(f"its content is {what}, not text")


def _mark(head: bytes) -> tuple[bytes, str]:
    """Returns the byte-order mark, which may be empty, and the encoding."""
    return next(((mark, name) for mark, name in _ENCODINGS.items() if head.startswith(mark)), (b"", "utf-8"))


def _pieces(file: BinaryIO | gzip.GzipFile) -> Pieces:
    while piece := file.read(_PIECE):
        yield piece


def _first(pieces: Pieces) -> tuple[bytes, Pieces]:
    """Returns the first bytes of the pieces, and an iterator over all pieces."""
    taken: list[bytes] = []
    while sum(map(len, taken)) < _HEAD_BYTES and (piece := next(pieces, None)) is not None:  # a piece may be empty
        taken.append(piece)
    start = b"".join(taken)
    return start[:_HEAD_BYTES], itertools.chain([start], pieces)


def _transcoded(pieces: Pieces, mark: bytes, encoding: str) -> Pieces:
    """Yields the text in UTF-8, without the mark. Text in UTF-8 is passed on unchecked."""
    whole = itertools.chain([b"".join(itertools.islice(pieces, 1))[len(mark) :]], pieces)
    if encoding == "utf-8":
        yield from whole
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    yield from (decoder.decode(piece).encode() for piece in whole)
    yield decoder.decode(b"", True).encode()


def _stream(pieces: Pieces) -> io.BufferedReader:
    return io.BufferedReader(_Pieces(pieces), _PIECE)


class _Pieces(io.RawIOBase):
    """A raw stream that returns one piece after another."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        target = memoryview(buffer).cast("B")
        count = min(len(target), len(self._rest))
        target[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
