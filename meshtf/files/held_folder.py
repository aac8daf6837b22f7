"""Temporary folders that are locked while a process uses them, so that folders of killed processes can be removed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

_SECONDS_UNTIL_HELD = 3600.0
"""Seconds after which a new folder is certainly locked, or its process dead. A process may be paused in between."""


class HeldFolder:
    """A folder in the temporary folder, locked until `remove` or the end of the process.

    The constructor first removes folders with the same prefix whose processes were killed, since they are not locked.
    On a file system without locks, they stay.

    Attributes:
      path: the folder.
    """

    def __init__(self, prefix: str) -> None:
        _remove_left_behind(prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(OSError):  # there are no locks
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Removes the folder and everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._descriptor)


def _remove_left_behind(prefix: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):  # it is locked, or gone, or belongs to another user
            found = path.lstat()
            if found.st_uid == os.getuid() and time.time() - found.st_mtime > _SECONDS_UNTIL_HELD:
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
                finally:
                    os.close(descriptor)
