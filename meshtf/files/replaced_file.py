"""Files that appear whole or not at all."""

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
    """A temporary file to write into, which becomes `final` at the end, and is gone after an error.

    Where a link has the name, the link is replaced, and not what it stands for.

    Raises:
      OSError: it cannot be written, or another process writes the same file.
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
            raise OSError(errno.EBUSY, "another process writes it, too", str(final))
        temporary.rename(final)
    except OSError as error:
        if error.filename is None:  # of a write
            raise OSError(error.errno, error.strerror or str(error), str(final)) from None
        raise
    finally:
        if own is not None and _is_still(temporary, own):
            temporary.unlink()


def replace_file(final: Path, content: bytes) -> None:
    """Writes a file, whose content is the old or the new at every moment. Raises OSError as `replaced_file`."""
    with replaced_file(final) as file:
        file.write(content)


def _is_still(path: Path, own: os.stat_result) -> bool:
    """Whether this process's file has the name, and no other that was put in its place."""
    try:
        return os.path.samestat(os.lstat(path), own)
    except OSError:
        return False
