"""The path of a run's folder, as a user gives it."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from meshtf.train.configuration import ConfigurationError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")

_REMOTE = """\
the model folder {path!r} is on {scheme}://, and runs are kept in file systems only: give a path, such as runs/mine, or
mount the storage and give the path where it is."""

_EMPTY = "the model folder is empty text; give a path, such as runs/mine (. is the current folder)"

_UNWRITABLE = """\
the model folder {path!r} has {what} in it, which no message and no file of the run could show; give another path"""


def run_path(path: str | Path) -> Path:
    """The path, with `~` replaced.

    Raises:
      ConfigurationError: it is empty, of another storage than a file system, names a user whom there is not, or has
        characters that cannot be shown.
    """
    text = str(path)
    if not text.strip():
        raise ConfigurationError(_EMPTY)
    if match := _SCHEME.match(text):
        raise ConfigurationError(_REMOTE.format(path=text, scheme=match[1]))
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            raise ConfigurationError(_UNWRITABLE.format(path=text, what=f"the character U+{ord(character):04X}"))
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # what Python raises for a user without a home
        raise ConfigurationError(f"the model folder {text!r} cannot be found: {error}") from None
