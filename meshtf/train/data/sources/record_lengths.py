"""Checks the lengths in a TFRecord file. TensorFlow allocates as much memory as a length says, so a wrong length
kills it.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from meshtf.files.regular_file import open_regular

LARGEST_RECORD = 2**31 - 1
"""The most bytes of a serialized tf.train.Example, or of any protocol buffer."""

_HEADER = struct.Struct("<QI")
"""The length of the data and its checksum. The data follow, and then four bytes with their checksum."""

HEADER_BYTES, CHECKSUM_BYTES = _HEADER.size, 4
"""The bytes before and after the data of each record."""

_PIECE = 1 << 20


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...

    def skip(self, size: int, /) -> int:
        """Skips this many bytes, or to the end if fewer are left. Returns how many."""
        ...


def longest_record(path: Path, compression: str) -> int:
    """Returns the bytes of the longest record of a file, or 0. All records are skipped and not read.

    Args:
      path: the path of the file.
      compression: "", "GZIP" or "ZLIB".

    Raises:
      OSError: if it cannot be read, or is no regular file.
      ValueError: if a record claims more bytes than follow or are possible, or if the file has another compression.
    """
    return max(record_lengths(path, compression), default=0)


def record_lengths(path: Path, compression: str = "") -> Iterator[int]:
    """Yields the bytes of each record's data, in order. Arguments and errors are those of `longest_record`."""
    number = 0
    try:
        with _stream(path, compression) as stream:
            while header := stream.read(_HEADER.size):
                number += 1
                length = _HEADER.unpack(header)[0] if len(header) == _HEADER.size else 0
                if length > LARGEST_RECORD:
                    raise ValueError(
                        f"record {number} gives its length as {length:,} bytes, more than the limit of 2^31"
                    )
                wanted = length + CHECKSUM_BYTES
                if len(header) < _HEADER.size or stream.skip(wanted) < wanted:
                    raise ValueError(f"record {number} is cut short")
                yield length
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"the compressed data end, or are damaged, in record {number + 1}: {error}") from None


@contextlib.contextmanager
def _stream(path: Path, compression: str) -> Iterator[_Stream]:
    with open_regular(path) as file:
        if compression == "GZIP":
            yield _Decompressed(gzip.GzipFile(fileobj=file))
        elif compression == "ZLIB":
            yield _Decompressed(_ZlibFile(file))
        else:
            yield _Plain(file)


class _Plain:
    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size = file, os.fstat(file.fileno()).st_size

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def skip(self, size: int) -> int:
        start = self._file.tell()
        return self._file.seek(min(start + size, self._size)) - start


class _Decompressed:
    def __init__(self, file: gzip.GzipFile | _ZlibFile) -> None:
        self._file = file

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def skip(self, size: int) -> int:
        passed = 0
        while passed < size and (piece := self._file.read(min(size - passed, _PIECE))):
            passed += len(piece)
        return passed


class _ZlibFile:
    """A reader of bytes that zlib compressed, piece by piece."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._inflate = file, zlib.decompressobj()

    def read(self, size: int) -> bytes:
        """Returns at most this many bytes, and none at the end."""
        found = b""
        while len(found) < size and not self._inflate.eof:
            packed = self._inflate.unconsumed_tail or self._file.read(_PIECE)
            piece = self._inflate.decompress(packed, size - len(found))
            if not packed and not piece:
                raise EOFError("it is cut short")
            found += piece
        return found
