"""Folders of this machine for files that are being sent to or received from remote storage."""

from __future__ import annotations

import hashlib
import re
import weakref
from pathlib import Path

from meshtf.files.held_folder import HeldFolder
from meshtf.files.remote.failures import without_secrets
from meshtf.files.remote.remote_folder import RemoteFolder


class PassingFolder:
    """A folder that is deleted with this object, or at the end of the process."""

    def __init__(self) -> None:
        held = HeldFolder("meshtf_remote_")
        self.path = held.path
        weakref.finalize(self, held.remove)


def lasting_folder(parent: Path, remote: RemoteFolder) -> Path:
    """Returns the folder in `parent` for a folder of remote storage; it is the same in every process."""
    url = without_secrets(remote.url)
    readable = re.sub(r"[^\w.-]+", "_", url)[-60:].strip("_")
    return parent / f"{readable}-{hashlib.sha256(url.encode()).hexdigest()[:12]}"
