"""Writes into folders where another user may have planted a link, but never through the link."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_MODE = 0o666
"""The mode of a new file, before the process's umask is applied."""


def create_file(path: Path) -> BinaryIO:
    """Opens a new file to write into.

    An existing file, for example of a killed process, is removed first. A link is removed too, but not its target.

    Raises:
      OSError: if it cannot be made.
    """
    path.unlink(missing_ok=True)
    return os.fdopen(_opened(path, os.O_WRONLY | os.O_EXCL), "wb")


def append_to_file(path: Path, content: bytes) -> None:
    """Appends to a file, and creates it if it is missing.

    Raises:
      OSError: if it cannot be written, and then is unchanged, or if it is a symbolic link or not a regular file.
    """
    descriptor = _opened(path, os.O_WRONLY | os.O_APPEND)
    before = os.fstat(descriptor).st_size
    try:
        while content:
            content = content[os.write(descriptor, content) :]
    except OSError as error:
        os.ftruncate(descriptor, before)  # half a line would spoil the next one
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(descriptor)


def open_for_lock(path: Path) -> BinaryIO:
    """Opens a file to lock it. Its content has no meaning and does not change.

    Raises:
      OSError: if it cannot be made, or is a symbolic link or not a regular file.
    """
    return os.fdopen(_opened(path, os.O_RDWR), "r+b")


def _opened(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, _MODE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(
                errno.ELOOP, "it is a symbolic link, and meshtf does not write through links", str(path)
            ) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return descriptor
