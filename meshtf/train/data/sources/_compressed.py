"""Files of text that may be compressed or in UTF-16, and the lines of such files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from meshtf.files.regular_file import open_regular
from meshtf.files.text_content import BROKEN, NoTextError, is_plain, text_stream
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.packages.pyarrow_modules import MISSING_PYARROW

NO_TEXT = """\
{path} cannot be read as text: {error}.
Unpack it, give the source that reads such files, or leave it out of the patterns."""

DAMAGED = """\
{path} cannot be read: {error}.
It is damaged or cut short."""


def begins_anywhere(path: Path) -> bool:
    """Tells whether a file is plain UTF-8, so that its lines can be read from the middle. It is False for a
    missing file.
    """
    try:
        with open_regular(path) as file:
            return is_plain(file)
    except OSError:
        return False


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Opens the text of a file in UTF-8, without a byte-order mark. gzip, bzip2, xz or zstd may have compressed it.

    Raises:
      ConfigurationError: if it cannot be read, or is no text. Reading inside the context may raise it, too.
    """
    try:
        with open_regular(path) as file:
            yield text_stream(file, path.name)
    except NoTextError as error:
        raise ConfigurationError(NO_TEXT.format(path=path, error=error)) from error
    except ImportError as error:
        raise ConfigurationError(MISSING_PYARROW.format(what=f"{path}, which zstd compressed,")) from error
    except BROKEN as error:
        raise ConfigurationError(DAMAGED.format(path=path, error=error)) from error
    except OSError as error:
        text = DAMAGED if error.errno is None else "the text file {path} cannot be read: {error}"
        raise ConfigurationError(text.format(path=path, error=error)) from error
    except MemoryError:
        size = path.stat().st_size
        raise ConfigurationError(f"the text file {path} has {size:,} bytes, too many for memory; split it") from None


def lines_from(path: Path, start: int, stop: int | None) -> Iterator[tuple[int, bytes]]:
    """Yields the lines that begin in a range of bytes, without their ends, each with its number from the first.

    Raises:
      ConfigurationError: as `opened`.
    """
    with opened(path) as file:
        place = start
        mark = file.tell() if stop is not None else 0
        if start:
            file.seek(start - 1)
            place += len(file.readline()) - 1  # the line that began before `start` belongs to the part before
            mark = 0
        number = 0
        while stop is None or place < stop:
            line = file.readline()
            if not line:
                return
            place, mark = place + len(line) + mark, 0  # only the first line has a byte-order mark before it
            number += 1
            yield number, line.removesuffix(b"\n").removesuffix(b"\r")
