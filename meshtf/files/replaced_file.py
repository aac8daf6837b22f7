"""Writes files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from meshtf.files.unlinked_file import create_file


@contextlib.contextmanager
def replaced_file(final: Path) -> Iterator[BinaryIO]:
    """Yields a temporary file to write into. It is renamed to `final` at the end, or deleted after an error.

    If `final` is a link, the link itself is replaced, not its target.

    Raises:
      OSError: if it cannot be written, or if another process writes the same file.
    """
    temporary = final.with_name(f".writing-{final.name}")
    own: os.stat_result | None = None
    try:
        with create_file(temporary) as file:
            own = os.fstat(file.fileno())
            yield file
            file.flush()
            os.fsync(file.fileno())
        if not _is_still(temporary, own):
            raise OSError(errno.EBUSY, "another process also writes it", str(final))
        temporary.rename(final)
    except OSError as error:
        if error.filename is None:  # a failed write does not name its file
            raise OSError(error.errno, error.strerror or str(error), str(final)) from None
        raise
    finally:
        if own is not None and _is_still(temporary, own):
            temporary.unlink()


def replace_file(final: Path, content: bytes) -> None:
    """Writes a file that has the old or the new content at every moment. Raises OSError like `replaced_file`."""
    with replaced_file(final) as file:
        file.write(content)


def _is_still(path: Path, own: os.stat_result) -> bool:
    """Tells whether the path still leads to this process's file, which nobody has replaced."""
    try:
        return os.path.samestat(os.lstat(path), own)
    except OSError:
        return False
