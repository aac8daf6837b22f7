"""The manifest of a checkpoint: a file that lists its content. It is written last and checked first."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint._manifest_content import ManifestFault, check_content
from meshtf.checkpoint.chunks import Chunk
from meshtf.errors import CheckpointError, DamagedCheckpointError
from meshtf.files.regular_file import is_absent, read_regular
from meshtf_programs.strict_json import json_text

MANIFEST = "manifest.json"
FORMAT = 1

LARGEST = 64 << 20
"""The largest size of a manifest, in bytes. A manifest of a million chunks has this size."""

_UNTRUE = """\
{name} is wrong: {fault}. meshtf does not write such files, so something else made or changed it: use another \
checkpoint, or copy this one again from its source"""


@dataclasses.dataclass(frozen=True, slots=True)
class SavedTensor:
    """A tensor of a checkpoint: its shape, its type, and the boxes that it is stored in."""

    shape: tuple[int, ...]
    dtype: tf.DType
    boxes: tuple[Box, ...]

    @property
    def num_bytes(self) -> int:
        return Box.whole(self.shape).num_elements * self.dtype.size

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.shape))}] {self.dtype.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class SavedFile:
    """The size of a file, and its SHA-256. None for data files, where TensorFlow keeps a checksum for each chunk."""

    num_bytes: int
    sha256: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Manifest:
    """The step, the run's own state, the tensors and the files of a checkpoint."""

    step: int
    state: Mapping[str, Any]
    tensors: Mapping[str, SavedTensor]
    files: Mapping[str, SavedFile]

    def write(self, path: Path) -> None:
        """Writes the file: JSON with its own checksum. The text is unique for its content, so any change is detected.

        Raises:
          OSError: if a later `read` would refuse it, or if it cannot be written.
        """
        content = {
            "files": {name: dataclasses.asdict(file) for name, file in self.files.items()},
            "format": FORMAT,
            "state": dict(self.state),
            "step": self.step,
            "tensors": {name: _described(tensor) for name, tensor in self.tensors.items()},
        }
        try:
            check_content(content)
        except ManifestFault as fault:
            raise OSError(errno.EINVAL, f"it could not be read again: {fault}", str(path)) from None
        text = _with_checksum(content).encode()
        if len(text) > LARGEST:
            told = f"it could not be read again: {path.name} has {len(text):,} bytes, and the limit is {LARGEST:,}"
            raise OSError(errno.EFBIG, told, str(path))
        path.write_bytes(text)

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Reads and checks a manifest.

        Raises:
          DamagedCheckpointError: if the file is missing, was changed, or has impossible values. The message begins with
            the problem.
          CheckpointError: if a later version of meshtf wrote it.
          OSError: if it cannot be read.
        """
        content = _intact_content(path)
        if content.get("format") != FORMAT:
            raise CheckpointError(
                f"{path} has format {content.get('format')}; this version of meshtf reads format {FORMAT}"
            )
        try:
            check_content(content)
        except ManifestFault as fault:
            raise DamagedCheckpointError(_UNTRUE.format(name=path.name, fault=fault)) from None
        tensors = {name: _tensor(described) for name, described in content["tensors"].items()}
        files = {name: SavedFile(**file) for name, file in content["files"].items()}
        return cls(content["step"], content["state"], tensors, files)


def checked_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of a run's state, as a later read will return it.

    Raises:
      CheckpointError: if it is no mapping, or JSON cannot hold it.
    """
    if not isinstance(state, Mapping):
        raise CheckpointError(f"the state must be a dict of values by name, and not {type(state).__name__}")
    try:
        copy = json.loads(_canonical(state))
    except (TypeError, ValueError, RecursionError) as error:
        raise CheckpointError(f"the state {dict(state)!r} cannot be saved as JSON: {error}") from None
    if copy != state:
        raise CheckpointError(
            f"the state {dict(state)!r} would come back as {copy!r}; use lists, finite numbers, and text as keys"
        )
    return copy


def tensors_of(chunks: Iterable[Chunk]) -> dict[str, SavedTensor]:
    """Returns the tensors that these chunks make up, by name."""
    boxes: dict[str, list[Box]] = {}
    found: dict[str, Chunk] = {}
    for chunk in chunks:
        boxes.setdefault(chunk.tensor, []).append(chunk.box)
        found[chunk.tensor] = chunk
    return {name: SavedTensor(p.shape, p.dtype, tuple(boxes[name])) for name, p in sorted(found.items())}


def _intact_content(path: Path) -> dict[str, Any]:
    """Returns the content of a manifest, if its own checksum is right."""
    try:
        text = read_regular(path, LARGEST, follows_links=False).decode()
        content = json.loads(text)["content"]
        is_intact = isinstance(content, dict) and text == _with_checksum(content)
    except OSError as error:
        if not is_absent(error):
            raise
        raise DamagedCheckpointError(f"{path.name} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError):
        is_intact = False
    if not is_intact:
        raise DamagedCheckpointError(f"{path.name} does not have the content that was written")
    return content


def _described(tensor: SavedTensor) -> dict[str, Any]:
    boxes = [[list(box.start), list(box.size)] for box in tensor.boxes]
    return {"boxes": boxes, "dtype": tensor.dtype.name, "shape": list(tensor.shape)}


def _tensor(described: Mapping[str, Any]) -> SavedTensor:
    boxes = tuple(Box(tuple(start), tuple(size)) for start, size in described["boxes"])
    return SavedTensor(tuple(described["shape"]), tf.as_dtype(described["dtype"]), boxes)


def _canonical(content: Mapping[str, Any]) -> str:
    return json_text(content, sort_keys=True, separators=(",", ":"))


def _with_checksum(content: Mapping[str, Any]) -> str:
    text = _canonical(content)
    return f'{{"content":{text},"sha256":"{hashlib.sha256(text.encode()).hexdigest()}"}}\n'
