"""Finds the checkpoint that a user's path means."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from meshtf.checkpoint.checkpoint_folder import CheckpointFolder, is_step_name
from meshtf.checkpoint.formats.npz_file import NpzFile, write_npz
from meshtf.checkpoint.formats.safetensors_file import SafetensorsFile, write_safetensors
from meshtf.checkpoint.formats.tensor_source import TensorSource, write_source
from meshtf.checkpoint.manifest import MANIFEST
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from meshtf.errors import CheckpointError, nearest
from meshtf.files.remote.remote_folder import RemoteFolder

_OF_A_RUN = "checkpoints"
_NPZ, _SAFETENSORS = ".npz", ".safetensors"

_LIKE_A_FORMAT = re.compile(r"\.[A-Za-z]\w*")
_NO_FORMAT = """\
{path} ends in {suffix}, which no format uses{hint}
The output must be a file that ends in .npz or .safetensors, or the folder of a checkpoint, whose name \
ends in neither."""


def find_folder(path: Path | RemoteFolder) -> CheckpointFolder | None:
    """Returns the checkpoints in a folder, or in the folder `checkpoints` of a run, or None if there are none."""
    for folder in (CheckpointFolder(path), CheckpointFolder(path / _OF_A_RUN)):
        if folder.steps():
            return folder
    return None


def open_checkpoint(path: Path | RemoteFolder) -> SavedCheckpoint:
    """Opens a checkpoint by its own folder, or the newest in a folder of checkpoints.

    Raises:
      CheckpointError: if there is none.
      DamagedCheckpointError: if its manifest is missing or was changed.
    """
    return SavedCheckpoint.open(all_checkpoints([path])[-1])


def open_source(path: Path | RemoteFolder) -> TensorSource:
    """Opens a checkpoint as `open_checkpoint` does, or a file that ends in .npz or .safetensors.

    Raises:
      CheckpointError: if there is none, or it cannot be read.
    """
    if isinstance(path, RemoteFolder):
        return open_checkpoint(path)
    if path.suffix == _NPZ:
        return NpzFile.open(path)
    return SafetensorsFile.open(path) if path.suffix == _SAFETENSORS else open_checkpoint(path)


def write_to(source: TensorSource, path: Path) -> None:
    """Writes a source in the format of the path's suffix: .npz, .safetensors, or else a checkpoint's folder.

    Raises:
      CheckpointError: if the path exists already, or no format has this suffix.
      SaveError: if it cannot be written.
    """
    if path.exists():
        raise CheckpointError(f"{path} already exists; give another output, or remove it first")
    if _LIKE_A_FORMAT.fullmatch(path.suffix) and path.suffix not in (_NPZ, _SAFETENSORS):
        raise CheckpointError(
            _NO_FORMAT.format(path=path, suffix=path.suffix, hint=nearest(path.suffix, (_NPZ, _SAFETENSORS)))
        )
    if path.suffix == _NPZ:
        write_npz(source, path)
    elif path.suffix == _SAFETENSORS:
        write_safetensors(source, path)
    else:
        write_source(source, path)


def all_checkpoints(paths: Sequence[Path | RemoteFolder]) -> list[Path | RemoteFolder]:
    """Returns the folders of the checkpoints that the paths mean.

    A path is one checkpoint, or a folder of checkpoints. The latter gives all of them, oldest first.

    Raises:
      CheckpointError: if a path has no checkpoint.
    """
    found: list[Path | RemoteFolder] = []
    for path in paths:
        folder = None if _is_checkpoint(path) else find_folder(path)
        if folder is not None:
            found += [folder.place(step) for step in folder.steps()]
        elif _is_checkpoint(path) or (isinstance(path, Path) and path.is_dir() and is_step_name(path.name)):
            found.append(path)
        else:
            raise CheckpointError(f"{path} is not the folder of a checkpoint, such as step_00001000, and contains none")
    return found


def _is_checkpoint(path: Path | RemoteFolder) -> bool:
    return path.has(MANIFEST) if isinstance(path, RemoteFolder) else (path / MANIFEST).exists()
