"""The checkpoints of a run on remote storage. One is there when its manifest is, which is written last and deleted
first: object stores have no renaming."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

from meshtf.checkpoint.manifest import MANIFEST
from meshtf.files.remote.remote_folder import RemoteFolder

_MANIFEST = re.compile(rf"step_([0-9]{{8}}|[1-9][0-9]{{8,}})/{re.escape(MANIFEST)}")


def _nothing() -> None:
    """What else there is to write where there is nothing else."""


@dataclasses.dataclass(frozen=True)
class RemoteCheckpoints:
    """Folders `step_00001000` in a folder of remote storage.

    Attributes:
      folder: that has them.
      beside: writes what goes with a checkpoint, before it is there itself.
    """

    folder: RemoteFolder
    beside: Callable[[], None] = _nothing

    def path(self, step: int) -> RemoteFolder:
        """Where the checkpoint of a step is, or would be."""
        return self.folder / f"step_{step:08d}"

    def steps(self) -> list[int]:
        """Of which there is a checkpoint, oldest first. Raises OSError where the storage cannot be read."""
        matches = map(_MANIFEST.fullmatch, self.folder.files())
        return sorted(int(match[1]) for match in matches if match)

    def send(self, local: Path, step: int) -> None:
        """Writes a checkpoint that is whole on this machine, in place of one that may be there.

        Raises:
          OSError: the storage, or the checkpoint, cannot be read or written.
        """
        target = self.path(step)
        self.beside()
        target.delete([MANIFEST])
        for path in sorted(local.iterdir()):
            if path.name != MANIFEST:
                target.upload(path, path.name)
        target.write(MANIFEST, (local / MANIFEST).read_bytes())

    def delete(self, step: int) -> None:
        """Deletes a checkpoint, so that it is never half there. Raises OSError where the storage cannot be written."""
        folder = self.path(step)
        folder.delete([MANIFEST, *folder.files()])

    def delete_unfinished(self) -> list[RemoteFolder]:
        """Deletes what an interrupted process left of checkpoints; gives their folders."""
        files = self.folder.files()
        whole = {name.partition("/")[0] for name in files if _MANIFEST.fullmatch(name)}
        unfinished = [name for name in files if "/" in name and name.partition("/")[0] not in whole]
        self.folder.delete(unfinished)
        return [self.folder / name for name in sorted({name.partition("/")[0] for name in unfinished})]
