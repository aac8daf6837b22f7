"""Reads files, but only regular ones: reading a named pipe could wait for ever, and /dev/zero has no end."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a symbolic link",
}

_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EINVAL, errno.EFBIG, errno.ENAMETOOLONG}


def open_regular(path: Path, *, follows_links: bool = True) -> io.BufferedReader:
    """Opens a file for reading, without waiting.

    Args:
      path: the path of the file.
      follows_links: whether the path may be a symbolic link. Links in the path to its folder are always allowed.

    Raises:
      OSError: if it is missing, not readable, or not a regular file. `strerror` says which.
    """
    _check(os.stat(path, follow_symlinks=follows_links), path)
    # If it has been replaced since the check, these flags open a pipe without waiting, and refuse a link.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follows_links else os.O_NOFOLLOW)
    file = os.fdopen(os.open(path, flags), "rb")
    try:
        _check(os.fstat(file.fileno()), path)
    except OSError:
        file.close()
        raise
    return file


def read_regular(path: Path, most_bytes: int, *, follows_links: bool = True) -> bytes:
    """Returns the content of a file that has at most `most_bytes` bytes.

    Raises:
      OSError: as `open_regular`, or if it has more bytes.
    """
    with open_regular(path, follows_links=follows_links) as file:
        size = os.fstat(file.fileno()).st_size
        content = b"" if size > most_bytes else file.read(most_bytes + 1)
    if max(size, len(content)) > most_bytes:
        raise OSError(
            errno.EFBIG, f"it has {max(size, len(content)):,} bytes, and the limit is {most_bytes:,}", str(path)
        )
    return content


def is_absent(error: OSError) -> bool:
    """Tells whether an error means that there is no such file, or something else at its path.

    It is False for errors that may be temporary.
    """
    return error.errno in _ABSENT


def kind_of(mode: int) -> str:
    """Returns words for the kind of file that has this `st_mode`."""
    return _KINDS.get(stat.S_IFMT(mode), "a regular file")


def _check(found: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"it is {kind_of(found.st_mode)}, not a regular file", str(path))
