"""Checkpoints as safetensors files: a header in JSON, and the tensors' bytes behind it, written and read in parts.

The format is that of https://github.com/huggingface/safetensors: eight bytes with the length of the header, the header,
and the tensors in row-major order, little-endian.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.checkpoint._atomic_file import atomic_file
from meshtf.checkpoint._box import Box
from meshtf.checkpoint.formats.tensor_source import TensorSource, described, elements
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.errors import CheckpointError, SaveError

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


@dataclasses.dataclass(frozen=True)
class SafetensorsFile:
    """Tensors of a safetensors file, of meshtf's or not."""

    path: Path
    step: int
    state: Mapping[str, Any]
    tensors: Mapping[str, SavedTensor]
    offsets: Mapping[str, int]

    @classmethod
    def open(cls, path: Path) -> SafetensorsFile:
        """
        Raises:
          CheckpointError: it is no safetensors file, is cut short, or has a type that TensorFlow lacks.
        """
        try:
            with path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(length)) if length <= path.stat().st_size else None
            about = json.loads(header.pop(_METADATA, {}).get(_ABOUT, "{}"))  # type: ignore[union-attr]
            tensors = {name: described(e["shape"], _TYPES[e["dtype"]]) for name, e in sorted(header.items())}  # type: ignore[union-attr]
            offsets = {name: 8 + length + e["data_offsets"][0] for name, e in header.items()}  # type: ignore[union-attr]
        except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
            raise CheckpointError(f"{path} cannot be read as a safetensors file: {error}") from None
        end = max((offsets[name] + tensor.num_bytes for name, tensor in tensors.items()), default=0)
        if end > path.stat().st_size:
            raise CheckpointError(f"{path} is cut short: {path.stat().st_size} bytes instead of {end}")
        return cls(path, about.get("step", 0), about.get("state", {}), tensors, offsets)

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """A tensor, or a part of it."""
        tensor = self.tensors[name]
        if not tensor.num_bytes:
            return tf.zeros(tensor.shape, tensor.dtype)
        array = np.memmap(self.path, tensor.dtype.as_numpy_dtype, "r", self.offsets[name], tensor.shape)
        return tf.constant(array if box is None else array[box.slices], tensor.dtype)


def write_safetensors(source: TensorSource, path: Path) -> None:
    """Writes a safetensors file, part by part. Raises SaveError where that cannot be."""
    header: dict[str, Any] = {_METADATA: {_ABOUT: json.dumps({"step": source.step, "state": dict(source.state)})}}
    end = 0
    for name, tensor in source.tensors.items():
        if tensor.dtype not in _NAMES:
            raise SaveError(f'{path}: safetensors has no type for tensor "{name}" {tensor}; convert to .npz')
        begin, end = end, end + tensor.num_bytes
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with atomic_file(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in source.tensors:
            for part in elements(source, name):
                file.write(part.tobytes())
