"""Paths as users give them. Only this module replaces `~`."""

from __future__ import annotations

import os
from pathlib import Path

_FILE_SCHEME = "file://"
_NO_USER = 'this machine has no user "{user}", whose folder ~{user} would be; give the path in full'
_NO_HOME = "the folder of this user, which ~ stands for, is unknown; set HOME, or give the path in full"


class UserPathError(ValueError):
    """A path whose `~` cannot be replaced.

    Attributes:
      path: the path as it was given.
      reason: why it cannot be replaced. The text does not name the path.
    """

    def __init__(self, path: str) -> None:
        user = _without_scheme(path).partition("/")[0].removeprefix("~")
        self.path, self.reason = path, (_NO_USER if user else _NO_HOME).format(user=user)
        super().__init__(f"{path}: {self.reason}")


def user_path(path: str | os.PathLike[str]) -> Path:
    """Returns a user's path on this machine, with `~` and `~name` replaced. It may have the form `file:///runs`.

    Raises:
      UserPathError: if there is no such user.
    """
    text = _without_scheme(os.fspath(path))
    found = os.path.expanduser(text)  # Path.expanduser would treat ./~ as ~
    if text.startswith("~") and found == text:
        raise UserPathError(os.fspath(path))
    return Path(found)


def _without_scheme(text: str) -> str:
    return text[len(_FILE_SCHEME) :] if text.lower().startswith(_FILE_SCHEME) else text
