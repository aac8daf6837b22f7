"""Checkpoints as NumPy's .npz files: one array for each tensor, and one with the step and the run's state."""

from __future__ import annotations

import dataclasses
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import tensorflow as tf

from meshtf.checkpoint._atomic_file import atomic_file
from meshtf.checkpoint._box import Box
from meshtf.checkpoint.formats.tensor_source import TensorSource, described, elements
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.errors import CheckpointError

_ABOUT = "__meshtf__"


@dataclasses.dataclass
class NpzFile:
    """Tensors of an .npz file, of meshtf's or not.

    NumPy has no bfloat16: such a tensor is kept as float32, which holds its values exactly, and comes back as bfloat16.
    """

    path: Path
    step: int
    state: Mapping[str, Any]
    tensors: Mapping[str, SavedTensor]
    _last: tuple[str, np.ndarray] | None = None

    @classmethod
    def open(cls, path: Path) -> NpzFile:
        """
        Raises:
          CheckpointError: it is no .npz file, or has arrays of objects or text.
        """
        try:
            if not zipfile.is_zipfile(path):
                raise ValueError("it is not there" if not path.exists() else "it is no zip archive")
            with np.load(path) as arrays:
                about = json.loads(str(arrays[_ABOUT])) if _ABOUT in arrays else {}
            tensors = _tensors(path, about.get("bfloat16", []))
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise CheckpointError(f"{path} cannot be read as an .npz file: {error}") from None
        return cls(path, about.get("step", 0), about.get("state", {}), tensors)

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """A tensor, or a part of it. The last one is kept: parts of one tensor are asked for one after the other."""
        if self._last is None or self._last[0] != name:
            with np.load(self.path) as arrays:
                self._last = name, arrays[name]
        array = self._last[1]
        return tf.cast(array if box is None else array[box.slices], self.tensors[name].dtype)


def write_npz(source: TensorSource, path: Path) -> None:
    """Writes an .npz file, part by part. Raises SaveError where that cannot be."""
    widened = [name for name, tensor in source.tensors.items() if tensor.dtype == tf.bfloat16]
    about = json.dumps({"step": source.step, "state": dict(source.state), "bfloat16": widened})
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


def _tensors(path: Path, widened: list[str]) -> dict[str, SavedTensor]:
    found = {}
    with zipfile.ZipFile(path) as archive:
        for entry in sorted(archive.namelist()):
            name = entry.removesuffix(".npy")
            if name != _ABOUT:
                with archive.open(entry) as file:
                    shape, dtype = _header(file)
                if dtype.kind not in "biufc":
                    raise CheckpointError(f'{path}: array "{name}" is of type {dtype}, which no variable can have')
                found[name] = described(shape, tf.bfloat16 if name in widened else tf.as_dtype(dtype))
    return found


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    is_first_version = np.lib.format.read_magic(file) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if is_first_version else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype
