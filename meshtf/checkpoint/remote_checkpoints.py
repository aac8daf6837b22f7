"""The checkpoints of a run on remote storage.

Object stores cannot rename. So a checkpoint exists if its manifest exists, which is written last and deleted first.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

from meshtf.checkpoint.manifest import MANIFEST
from meshtf.files.remote.remote_folder import RemoteFolder

STEP = "step_([0-9]{8}|[1-9][0-9]{8,})"  # the pattern of a checkpoint's name
_MANIFEST = re.compile(f"{STEP}/{re.escape(MANIFEST)}")
_PART = re.compile(f"{STEP}/.*", re.DOTALL)


def _nothing() -> None:
    """Writes nothing. It is the default of `beside`."""


@dataclasses.dataclass(frozen=True)
class RemoteCheckpoints:
    """Folders such as `step_00001000` in a folder of remote storage.

    Attributes:
      folder: the folder of the checkpoints.
      beside: a function that writes further files of the run, called before each checkpoint is sent.
    """

    folder: RemoteFolder
    beside: Callable[[], None] = _nothing

    def path(self, step: int) -> RemoteFolder:
        """Returns the place of a step's checkpoint, even if there is none."""
        return self.folder / f"step_{step:08d}"

    def steps(self) -> list[int]:
        """Lists the steps that have a checkpoint, oldest first. Raises OSError if the storage cannot be read."""
        matches = map(_MANIFEST.fullmatch, self.folder.files())
        return sorted(int(match[1]) for match in matches if match)

    def send(self, local: Path, step: int) -> None:
        """Sends a complete checkpoint from this machine. It replaces the one of the same step on the storage, if any.

        Raises:
          OSError: if the storage, or the checkpoint, cannot be read or written.
        """
        target = self.path(step)
        self.beside()
        target.delete([MANIFEST])
        for path in sorted(local.iterdir()):
            if path.name != MANIFEST:
                target.upload(path, path.name)
        target.write(MANIFEST, (local / MANIFEST).read_bytes())

    def delete(self, step: int) -> None:
        """Deletes a checkpoint, the manifest first. Raises OSError if the storage cannot be written."""
        folder = self.path(step)
        folder.delete([MANIFEST, *folder.files()])

    def delete_unfinished(self) -> list[RemoteFolder]:
        """Deletes the parts of checkpoints that an interrupted process left, and returns their folders.

        Files in folders of other names, such as copies that the user has made, stay.
        """
        files = self.folder.files()
        whole = {name.partition("/")[0] for name in files if _MANIFEST.fullmatch(name)}
        unfinished = [name for name in files if _PART.fullmatch(name) and name.partition("/")[0] not in whole]
        self.folder.delete(unfinished)
        return [self.folder / name for name in sorted({name.partition("/")[0] for name in unfinished})]
