"""One checkpoint on disk: its manifest, its values, and checks that it is complete."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint._manifest_content import INDEX
from meshtf.checkpoint.chunks import WHOLE_TYPES
from meshtf.checkpoint.formats.tensor_files import read_box
from meshtf.checkpoint.formats.tensor_index import LARGEST_INDEX, check_index
from meshtf.checkpoint.manifest import MANIFEST, Manifest, SavedFile, SavedTensor
from meshtf.checkpoint.reading._partial_copy import PartialCopy
from meshtf.errors import CheckpointError, DamagedCheckpointError, nearest
from meshtf.files.regular_file import is_absent, kind_of, open_regular
from meshtf.files.remote.remote_folder import RemoteFolder, place_of
from meshtf.files.remote.working_folder import PassingFolder

PREFIX = "variables"

_NOT_READ = (
    *(tf.errors.PermissionDeniedError, tf.errors.ResourceExhaustedError, tf.errors.UnavailableError),
    *(tf.errors.UnknownError, tf.errors.AbortedError, tf.errors.InternalError),
)
"""Errors that do not mean damage: the bytes could not be read at all."""


@dataclasses.dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint whose manifest is intact. `verify` checks that its values are intact as well."""

    folder: Path
    manifest: Manifest
    _copy: PartialCopy | None = None

    @classmethod
    def open(cls, folder: Path | str | RemoteFolder) -> SavedCheckpoint:
        """Reads the manifest of a checkpoint's folder. It checks that the data files are regular files, but opens none.

        On remote storage it reads only the small files. Later reads fetch their parts into a temporary folder,
        `folder`, which is deleted with this object.

        Raises:
          DamagedCheckpointError: if the manifest or TensorFlow's index is missing, was changed, or has impossible
            values. Also if a data file is a link or a pipe.
          OSError: if one of them cannot be read.
          CheckpointError: if a later version of meshtf wrote it.
        """
        place = place_of(folder)
        return cls._open_remote(place) if isinstance(place, RemoteFolder) else cls._open_local(place)

    @classmethod
    def _open_local(cls, path: Path) -> SavedCheckpoint:
        try:
            saved = cls(path, Manifest.read(path / MANIFEST))
        except DamagedCheckpointError as error:
            raise _damaged(path, str(error)) from None
        if fault := _irregular(path) or _index_fault(path / INDEX):
            raise _damaged(path, fault)
        return saved

    @classmethod
    def _open_remote(cls, remote: RemoteFolder) -> SavedCheckpoint:
        passing = PassingFolder()
        there = remote.files()
        for name in (MANIFEST, INDEX):
            if there.get(name, LARGEST_INDEX + 1) <= LARGEST_INDEX:
                remote.download(name, passing.path / name)
        try:
            manifest = Manifest.read(passing.path / MANIFEST)
            faults = (_remote_fault(name, file, there) for name, file in manifest.files.items())
            if fault := next(filter(None, faults), None) or _index_fault(passing.path / INDEX):
                raise _damaged(remote, fault)
            for name in manifest.files:
                if name != INDEX and ".data-" not in name:
                    remote.download(name, passing.path / name)
            data = {name: file.num_bytes for name, file in manifest.files.items() if ".data-" in name}
            return cls(passing.path, manifest, PartialCopy(remote, passing, data, PREFIX))
        except DamagedCheckpointError as error:
            raise (error if str(error).startswith("checkpoint ") else _damaged(remote, str(error))) from None
        except (FileNotFoundError, ValueError) as error:
            raise _damaged(remote, str(error)) from None

    @property
    def place(self) -> Path | RemoteFolder:
        """The place of the checkpoint."""
        return self.folder if self._copy is None else self._copy.remote

    @property
    def is_there(self) -> bool:
        """Whether the checkpoint still exists."""
        return self.folder.exists() if self._copy is None else self._copy.remote.has(MANIFEST)

    @property
    def step(self) -> int:
        """The number of steps after which it was saved."""
        return self.manifest.step

    @property
    def state(self) -> Mapping[str, Any]:
        """The run's own state beside its variables, such as the position in the data and the seed."""
        return self.manifest.state

    @property
    def tensors(self) -> Mapping[str, SavedTensor]:
        """The shape and type of each saved tensor, by name. Each layer of a stack is a tensor of its own."""
        return self.manifest.tensors

    @property
    def prefix(self) -> Path:
        """The path for `tf.train.load_checkpoint`, which also accepts the folder."""
        return self.folder / PREFIX

    @property
    def num_bytes(self) -> int:
        """The bytes of all values."""
        return sum(tensor.num_bytes for tensor in self.tensors.values())

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """Returns a tensor, or a part of it, on the host.

        Raises:
          CheckpointError: if there is no such tensor.
          DamagedCheckpointError: if the values are not those that were written.
          OSError: if they cannot be read for another reason, such as a lack of permission.
        """
        if name not in self.tensors:
            raise CheckpointError(f'checkpoint {self.place} has no tensor "{name}"{nearest(name, self.tensors)}')
        tensor = self.tensors[name]
        part = box or Box.whole(tensor.shape)
        try:
            if self._copy is not None:
                self._copy.bring(name, Box.whole(tensor.shape) if tensor.dtype in WHOLE_TYPES else part)
            value = read_box(self.prefix, name, tensor.shape, tensor.dtype, part)
        except _NOT_READ as error:
            raise OSError(f'tensor "{name}" of checkpoint {self.place} cannot be read: {error}') from None
        except (tf.errors.OpError, FileNotFoundError, IndexError, ValueError) as error:
            raise _damaged(self.place, f'tensor "{name}" cannot be read: {error}') from None
        if tuple(value.shape) != part.size:
            raise _damaged(self.place, f'tensor "{name}" is of shape {tuple(value.shape)} in {PREFIX}.index')
        return value

    def check_files(self) -> None:
        """Checks the files, but not the values.

        Raises:
          DamagedCheckpointError: if a file is missing or cut short, or the index was changed. The message names it.
          OSError: if a file cannot be read.
        """
        for name, file in self.manifest.files.items():
            fault = _fault(self.folder / name, file)
            if fault:
                raise _damaged(self.place, f"{name} {fault}")

    def verify(self) -> None:
        """Reads everything, chunk by chunk, and compares it with the checksums.

        Raises:
          DamagedCheckpointError: if a file or a tensor is not as it was written. The message names it.
          OSError: if a file cannot be read.
        """
        self.check_files()
        for name, tensor in self.tensors.items():
            for box in tensor.boxes:
                self.read(name, box)


def described_file(path: Path) -> SavedFile:
    """Returns the manifest's entry for a file that was just written."""
    size = path.stat().st_size
    return SavedFile(size) if ".data-" in path.name else SavedFile(size, _digest(path))


def _irregular(folder: Path) -> str | None:
    """Returns the problem if a link, a pipe or the like has the name of a data file, else None. TensorFlow would
    follow the link, or wait for the pipe.
    """
    for path in sorted(folder.glob(f"{PREFIX}.*")):
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode):
            return f"{path.name} is {kind_of(mode)}, not a regular file; put the file itself there"
    return None


def _index_fault(path: Path) -> str | None:
    """Returns the problem of the index, or None. A wrong index could crash TensorFlow."""
    try:
        check_index(path)
    except FileNotFoundError:
        return f"{path.name} is missing"
    except OSError as error:
        if not is_absent(error):
            raise
        return f"{path.name} cannot be read: {error.strerror}"
    except ValueError as error:
        return f"{path.name} {error}"
    return None


def _fault(path: Path, file: SavedFile) -> str | None:
    try:
        with open_regular(path, follows_links=False) as opened:
            size = os.fstat(opened.fileno()).st_size
            if size != file.num_bytes:
                return f"has {size} bytes instead of {file.num_bytes}"
            if file.sha256 is not None and hashlib.file_digest(opened, "sha256").hexdigest() != file.sha256:
                return "does not have the content that was written"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        if not is_absent(error):
            raise
        return f"cannot be read: {error.strerror}"
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remote_fault(name: str, file: SavedFile, there: Mapping[str, int]) -> str | None:
    if name not in there:
        return f"{name} is missing"
    return None if there[name] == file.num_bytes else f"{name} has {there[name]} bytes instead of {file.num_bytes}"


def _damaged(folder: Path | RemoteFolder, fault: str) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"checkpoint {folder} is damaged: {fault}")
