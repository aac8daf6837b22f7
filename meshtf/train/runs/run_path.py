"""The path of a run's folder, as a user gives it."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from meshtf.files.remote.failures import StorageError, without_secrets
from meshtf.files.remote.remote_folder import RemoteFolder, place_of
from meshtf.train.configuration import ConfigurationError
from meshtf_programs.user_paths import UserPathError

_EMPTY = "the model folder is empty text; give a path, such as runs/mine (. is the current folder)"

_UNWRITABLE = """\
the model folder {path!r} has {what} in it, which no message and no file of the run could show; give another path"""


def run_path(path: str | Path | RemoteFolder) -> Path | RemoteFolder:
    """Returns the path with `~` replaced, or a folder of remote storage.

    Raises:
      ConfigurationError: if it is empty, is on storage that cannot be opened, names an unknown user, or has characters
        that cannot be shown.
    """
    if isinstance(path, RemoteFolder):
        return path
    text = str(path)
    if not text.strip():
        raise ConfigurationError(_EMPTY)
    for character in text:
        if unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp"):
            what = f"the character U+{ord(character):04X}"
            raise ConfigurationError(_UNWRITABLE.format(path=without_secrets(text), what=what))
    try:
        return place_of(text)
    except StorageError as error:
        raise ConfigurationError(f"the model folder {error}") from None
    except UserPathError as error:
        raise ConfigurationError(f"the model folder {error}") from None
