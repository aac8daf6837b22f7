"""Files of text that may be compressed, as their names say, and the lines of such files."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from meshtf.files.regular_file import open_regular
from meshtf.train.configuration import ConfigurationError

SUFFIXES = (".gz", ".zst")

MISSING_PYARROW = """\
{what} reads with pyarrow, which is not installed.
Install it with the project's extra: pip install 'meshtf[arrow]'"""

NOT_ITS_OWN = """\
{path} cannot be read: {error}
It is damaged, or not compressed as its name says."""


def is_compressed(path: Path) -> bool:
    return path.suffix in SUFFIXES


def import_pyarrow(module: str, what: str) -> Any:
    """A module of pyarrow, which is an optional dependency; `what` needs it.

    Raises:
      ConfigurationError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(MISSING_PYARROW.format(what=what)) from error


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed if its name ends in .gz or .zst.

    Raises:
      ConfigurationError: it cannot be read; while it is read, too, inside of the context.
    """
    try:
        with open_regular(path) as file:
            yield _decompressed(file, path)
    except (OSError, EOFError, zlib.error) as error:
        if is_compressed(path):
            raise ConfigurationError(NOT_ITS_OWN.format(path=path, error=error)) from error
        raise ConfigurationError(f"the text file {path} cannot be read: {error}") from error
    except MemoryError:
        size = path.stat().st_size
        raise ConfigurationError(f"the text file {path} has {size:,} bytes, more than memory takes; split it") from None


def lines_from(path: Path, start: int, stop: int | None) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a range of bytes, without their ends, each with its number counted from the first.

    Raises:
      ConfigurationError: as `opened`.
    """
    with opened(path) as file:
        place = start
        if start:
            file.seek(start - 1)
            place += len(file.readline()) - 1  # what the part before has, or its last end of a line
        number = 0
        while stop is None or place < stop:
            line = file.readline()
            if not line:
                return
            place += len(line)
            number += 1
            yield number, line.removesuffix(b"\n").removesuffix(b"\r")


def _decompressed(file: io.BufferedReader, path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if path.suffix == ".zst":
        stream = import_pyarrow("pyarrow", f"{path}, which zstd compressed,").CompressedInputStream(file, "zstd")
        return cast(BinaryIO, io.BufferedReader(stream))
    return file
