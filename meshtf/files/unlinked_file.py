"""Writing into folders in which another may have planted a link, and never through it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_MODE = 0o666
"""Of a new file, less what the process's umask takes away."""


def create_file(path: Path) -> BinaryIO:
    """A new file to write into. What is there under the name, such as a file of a process that was killed, or a link,
    is taken away first; what a link stands for is not touched.

    Raises:
      OSError: it cannot be made.
    """
    path.unlink(missing_ok=True)
    return os.fdopen(_opened(path, os.O_WRONLY | os.O_EXCL), "wb")


def append_to_file(path: Path, content: bytes) -> None:
    """Adds to the end of a file, which is made where it is not there.

    Raises:
      OSError: it cannot be written, and is as it was; or it is a symbolic link or no regular file.
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
    """A file whose content means nothing, and stays as it is.

    Raises:
      OSError: it cannot be made, or is a symbolic link or no regular file.
    """
    return os.fdopen(_opened(path, os.O_RDWR), "r+b")


def _opened(path: Path, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, _MODE)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link, which is not written through", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return descriptor
