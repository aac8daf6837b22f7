"""Checkpoints as safetensors files.

The library https://github.com/huggingface/safetensors reads them. It refuses headers whose offsets, shapes and types
contradict each other. But it can only write all tensors at once, from memory. So this module writes them part by part:
- eight bytes with the length of the header;
- the header in JSON, such as {"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}};
- the tensors in row-major order, little-endian.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from safetensors import SafetensorError, safe_open

from meshtf.checkpoint._atomic_file import atomic_file
from meshtf.checkpoint._box import Box
from meshtf.checkpoint._manifest_content import is_name, shown
from meshtf.checkpoint.formats._about import About
from meshtf.checkpoint.formats.tensor_source import TensorSource, described, elements
from meshtf.checkpoint.formats.unreadable import unreadable
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.errors import DamagedCheckpointError, SaveError
from meshtf.files.regular_file import open_regular
from meshtf_programs.strict_json import json_text

_TYPES = {
    "BOOL": tf.bool,
    "U8": tf.uint8,
    "I8": tf.int8,
    "U16": tf.uint16,
    "I16": tf.int16,
    "F16": tf.float16,
    "BF16": tf.bfloat16,
    "U32": tf.uint32,
    "I32": tf.int32,
    "F32": tf.float32,
    "U64": tf.uint64,
    "I64": tf.int64,
    "F64": tf.float64,
    "C64": tf.complex64,
}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_METADATA, _ABOUT = "__metadata__", "meshtf"


_ALIGNMENT = 8


@dataclasses.dataclass(frozen=True)
class SafetensorsFile:
    """The tensors of a safetensors file, written by meshtf or by others."""

    path: Path
    step: int
    state: Mapping[str, Any]
    tensors: Mapping[str, SavedTensor]
    _file: safe_open

    @classmethod
    def open(cls, path: Path) -> SafetensorsFile:
        """Opens a safetensors file.

        Raises:
          CheckpointError: if it is no safetensors file, is cut short, has impossible values in its header, or has a
            name or a type that TensorFlow lacks.
        """
        try:
            open_regular(path).close()
            file = safe_open(path, "numpy")
            _check_names_are_different(path)
            about = About.of_text((file.metadata() or {}).get(_ABOUT, "{}"))
            tensors = {name: _tensor(file, name) for name in sorted(file.keys())}
        except (OSError, ValueError, SafetensorError) as error:
            raise unreadable(path, "a safetensors file", error) from None
        return cls(path, about.step, about.state, tensors, file)

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """Returns a tensor, or a part of it.

        Raises:
          DamagedCheckpointError: if the file has changed since it was opened.
        """
        tensor = self.tensors[name]
        part = box or Box.whole(tensor.shape)
        if not part.num_elements:
            return tf.zeros(part.size, tensor.dtype)
        try:
            value = self._file.get_slice(name)[part.slices] if tensor.shape else self._file.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise DamagedCheckpointError(f"tensor {shown(name)} of {self.path} cannot be read: {error}") from None
        return tf.constant(value, tensor.dtype)


def write_safetensors(source: TensorSource, path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Writes a safetensors file, part by part. Raises SaveError if it cannot.

    `metadata` replaces meshtf's own metadata, which has the step and the state.
    """
    own = {"format": "tf", _ABOUT: About(source.step, source.state).text()}
    header: dict[str, Any] = {_METADATA: dict(own if metadata is None else metadata)}
    # The widest types come first, as in the library: then every element is aligned to its size.
    names = sorted(source.tensors, key=lambda name: (-source.tensors[name].dtype.size, name))
    end = 0
    for name in names:
        tensor = source.tensors[name]
        if tensor.dtype not in _NAMES:
            raise SaveError(f'{path}: safetensors has no type for tensor "{name}" {tensor}; convert to .npz')
        if name == _METADATA:
            raise SaveError(f'{path}: a tensor in a safetensors file cannot be called "{name}"; convert to .npz')
        begin, end = end, end + tensor.num_bytes
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json_text(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with atomic_file(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            for part in elements(source, name):
                file.write(part.tobytes())


def _check_names_are_different(path: Path) -> None:
    """Raises ValueError if a name occurs twice. The format forbids it, and the library would use the last one.

    The header must be valid JSON.
    """
    with open_regular(path) as file:
        json.loads(file.read(int.from_bytes(file.read(8), "little")), object_pairs_hook=_pairs)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{shown(next(name for name in names if names.count(name) > 1))} appears twice in its header")
    return found


def _tensor(file: safe_open, name: str) -> SavedTensor:
    if not is_name(name):
        raise ValueError(f"a tensor is called {shown(name)}, which cannot be the name of a variable")
    found = file.get_slice(name)
    if found.get_dtype() not in _TYPES:
        raise ValueError(f"tensor {shown(name)} is of type {found.get_dtype()}, which no variable can have")
    return described(found.get_shape(), _TYPES[found.get_dtype()])
