"""Checkpoints as NumPy's .npz files: one array for each tensor, and one with the step and the run's state."""

from __future__ import annotations

import contextlib
import dataclasses
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.checkpoint._atomic_file import atomic_file
from meshtf.checkpoint._box import Box
from meshtf.checkpoint._manifest_content import shown
from meshtf.checkpoint.formats._about import About
from meshtf.checkpoint.formats._npz_entries import check_can_be_held, name_of, read_header
from meshtf.checkpoint.formats.tensor_source import TensorSource, described, elements
from meshtf.checkpoint.formats.unreadable import unreadable
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.errors import DamagedCheckpointError, SaveError
from meshtf.files.regular_file import open_regular

_ABOUT = "__meshtf__"
_LONGEST_ABOUT = 16 << 20
"""The most characters of the metadata beside the tensors."""


@dataclasses.dataclass
class NpzFile:
    """The tensors of an .npz file, written by meshtf or by others.

    NumPy has no bfloat16. Such a tensor is kept as float32, which holds its values exactly, and comes back as bfloat16.
    """

    path: Path
    step: int
    state: Mapping[str, Any]
    tensors: Mapping[str, SavedTensor]
    _entries: Mapping[str, str]
    _last: tuple[str, np.ndarray] | None = None

    @classmethod
    def open(cls, path: Path) -> NpzFile:
        """Opens an .npz file.

        Raises:
          CheckpointError: if it is no .npz file, has impossible values in its headers, or has arrays of objects or
            text.
        """
        try:
            with _archive(path) as archive:
                entries = _entries(archive)
                about = _about(archive, entries.pop(_ABOUT, None))
                tensors = {name: _tensor(archive, entries[name], name, about) for name in sorted(entries)}
        except Exception as error:  # zipfile, zlib, NumPy and Python's tokenizer raise a dozen kinds
            raise unreadable(path, "an .npz file", error) from None
        return cls(path, about.step, about.state, tensors, entries)

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """Returns a tensor, or a part of it. The last tensor is cached, since readers read its parts one after the
        other.

        Raises:
          DamagedCheckpointError: if its bytes are not those that were written.
        """
        if self._last is None or self._last[0] != name:
            self._last = name, self._read(name)
        array = self._last[1]
        return tf.cast(array if box is None else array[box.slices], self.tensors[name].dtype)

    def _read(self, name: str) -> np.ndarray:
        try:
            with _archive(self.path) as archive, archive.open(self._entries[name]) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
                file.read()  # zipfile compares checksums only at the end
        except Exception as error:  # zipfile, zlib, NumPy and Python's tokenizer raise a dozen kinds
            raise DamagedCheckpointError(
                f"array {shown(name)} of {self.path} cannot be read: {_reason(error)}"
            ) from None
        if array.shape != self.tensors[name].shape:
            raise DamagedCheckpointError(f"array {shown(name)} of {self.path} has changed since the file was opened")
        return array.astype(array.dtype.newbyteorder("="), copy=False)


def write_npz(source: TensorSource, path: Path) -> None:
    """Writes an .npz file, part by part. Raises SaveError if it cannot."""
    if _ABOUT in source.tensors:
        raise SaveError(
            f'{path}: a tensor in an .npz file of meshtf cannot be called "{_ABOUT}"; convert to .safetensors'
        )
    widened = tuple(name for name, tensor in source.tensors.items() if tensor.dtype == tf.bfloat16)
    for name, tensor in source.tensors.items():
        _check_can_be_read(path, name, np.float32 if name in widened else tensor.dtype.as_numpy_dtype)
    about = About(source.step, source.state, widened).text()
    with atomic_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        with archive.open(f"{_ABOUT}.npy", "w") as entry:
            np.lib.format.write_array(entry, np.array(about))
        for name, tensor in source.tensors.items():
            dtype = np.dtype(np.float32 if name in widened else tensor.dtype.as_numpy_dtype)
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                header = {"descr": dtype.str, "fortran_order": False, "shape": tensor.shape}
                np.lib.format.write_array_header_2_0(entry, header)
                for part in elements(source, name):
                    entry.write(part.astype(dtype).tobytes())


def _check_can_be_read(path: Path, name: str, dtype: type) -> None:
    """Raises SaveError if `NpzFile` could not read an array of this name and type again."""
    try:
        name_of(f"{name}.npy")
    except ValueError as error:
        raise SaveError(f"{path}: {error}; convert to .safetensors") from None
    if np.dtype(dtype).isbuiltin != 1:  # 2 is a type that another package has added, such as float8
        raise SaveError(f"{path}: NumPy has no type for tensor {shown(name)} of {np.dtype(dtype)}")


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        yield archive


def _entries(archive: zipfile.ZipFile) -> dict[str, str]:
    """Returns the name of each array's entry in the archive."""
    found: dict[str, str] = {}
    for entry in archive.namelist():
        name = name_of(entry)
        if name in found:
            raise ValueError(f"array {shown(name)} appears twice")
        found[name] = entry
    return found


def _about(archive: zipfile.ZipFile, entry: str | None) -> About:
    if entry is None:
        return About()
    with archive.open(entry) as file:
        header = read_header(file)
    check_can_be_held(archive, archive.getinfo(entry), header, _ABOUT)
    if header.dtype.kind != "U" or header.shape or header.num_bytes > 4 * _LONGEST_ABOUT:
        raise ValueError(f'"{_ABOUT}" must be a text that meshtf wrote, not {header}')
    with archive.open(entry) as file:
        return About.of_text(str(np.lib.format.read_array(file, allow_pickle=False)))


def _tensor(archive: zipfile.ZipFile, entry: str, name: str, about: About) -> SavedTensor:
    with archive.open(entry) as file:
        header = read_header(file)
    is_narrow = name in about.bfloat16
    if header.dtype.kind not in "biufc" or header.dtype.itemsize > 8 * (1 + (header.dtype.kind == "c")):
        raise ValueError(f"array {shown(name)} is of type {header.dtype}, which no variable can have")
    if is_narrow and header.dtype != np.float32:
        raise ValueError(f"array {shown(name)} should be bfloat16 kept as float32, but is of type {header.dtype}")
    check_can_be_held(archive, archive.getinfo(entry), header, name)
    dtype = tf.as_dtype(header.dtype.newbyteorder("="))
    return described(header.shape, tf.bfloat16 if is_narrow else dtype)


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
