"""Reads checkpoints in TensorFlow's own format, of either version, such as Mesh TensorFlow's and Google's BERT."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.formats.tensor_files import plain_path, read_box
from meshtf.checkpoint.formats.tensor_index import check_index
from meshtf.checkpoint.formats.tensor_source import described
from meshtf.checkpoint.formats.unreadable import unreadable
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.errors import CheckpointError, DamagedCheckpointError

_STEP = re.compile(r"(.*\.ckpt(?:-(\d+))?)(?:\.index|-\d{5}-of-\d{5})?")

_NO_CHECKPOINT = """\
{path} is not a TensorFlow checkpoint: give its prefix, such as model.ckpt-1000, or the folder that contains it"""


@dataclasses.dataclass(frozen=True)
class TensorFlowCheckpoint:
    """A `TensorSource` of a checkpoint of TensorFlow's, whose variables are whole or in slices.

    Attributes:
      prefix: the prefix of its files.
      tensors: the shape and type of each tensor.
    """

    prefix: Path
    tensors: Mapping[str, SavedTensor]

    @classmethod
    def open(cls, path: Path) -> TensorFlowCheckpoint:
        """Opens the checkpoint with a prefix, or the newest in a folder.

        Raises:
          CheckpointError: if there is none, or it is damaged.
        """
        prefix = _newest(path) if path.is_dir() else path
        index = prefix.with_name(f"{prefix.name}.index")
        try:
            if index.exists():
                check_index(index)
            with plain_path(prefix) as plain:
                reader = tf.train.load_checkpoint(plain)
            shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        except (OSError, ValueError, RuntimeError, tf.errors.OpError) as error:
            if not index.exists() and not list(prefix.parent.glob(f"{prefix.name}*")):
                raise CheckpointError(_NO_CHECKPOINT.format(path=path)) from None
            raise unreadable(prefix, "a TensorFlow checkpoint", error) from None
        tensors = {name: described(shapes[name], dtypes[name]) for name in sorted(shapes) if dtypes[name] != tf.string}
        return cls(prefix, tensors)

    @property
    def step(self) -> int:
        return 0

    @property
    def state(self) -> Mapping[str, Any]:
        return {}

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """A tensor, or a part of it.

        Raises:
          DamagedCheckpointError: if the values are not those that were written.
        """
        tensor = self.tensors[name]
        try:
            return read_box(self.prefix, name, tensor.shape, tensor.dtype, box or Box.whole(tensor.shape))
        except (tf.errors.OpError, OSError) as error:
            raise DamagedCheckpointError(f"tensor {name} of {self.prefix} cannot be read: {error}") from None


def _newest(folder: Path) -> Path:
    found = {
        int(match[2] or 0): folder / match[1]
        for p in folder.iterdir()
        if (match := _STEP.fullmatch(p.name)) is not None
    }
    if not found:
        raise CheckpointError(_NO_CHECKPOINT.format(path=folder))
    return found[max(found)]
