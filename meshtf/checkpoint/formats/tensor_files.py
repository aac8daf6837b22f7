"""Tensors in TensorFlow's checkpoint format, by slice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import tensorflow as tf

from meshtf.checkpoint.box import Box
from meshtf.checkpoint.pieces import WHOLE_TYPES, Piece

BYTES_AT_ONCE = 128 << 20
"""How much is handed to TensorFlow at once: what saving needs of memory beside the slices."""


def write_pieces(prefix: Path, pieces: Iterable[Piece], value_of: Callable[[Piece], tf.Tensor]) -> None:
    """Writes `<prefix>.index` and `<prefix>.data-...`, with each value held no longer than it is being written.

    Raises:
      tf.errors.OpError, OSError: it cannot be written.
    """
    parts = []
    with tf.init_scope(), tf.device("CPU:0"):
        for number, group in enumerate(_groups(pieces)):
            parts.append(str(prefix.with_name(f"part_{number:05d}")))
            tf.raw_ops.SaveV2(
                prefix=parts[-1],
                tensor_names=[piece.tensor for piece in group],
                shape_and_slices=[piece.box.specification(piece.shape) for piece in group],
                tensors=[value_of(piece) for piece in group],
            )
        tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=str(prefix), delete_old_dirs=False)


def read_box(prefix: Path, tensor: str, shape: Sequence[int], dtype: tf.DType, box: Box) -> tf.Tensor:
    """A part of a saved tensor, whatever slices it was saved in.

    Raises:
      tf.errors.OpError: it is not there, has another shape or type, or is damaged.
    """
    if dtype in WHOLE_TYPES:
        return _read(prefix, tensor, "", dtype)[box.slices]
    return _read(prefix, tensor, box.specification(shape), dtype)


def _read(prefix: Path, tensor: str, specification: str, dtype: tf.DType) -> tf.Tensor:
    with tf.init_scope(), tf.device("CPU:0"):
        (value,) = tf.raw_ops.RestoreV2(
            prefix=str(prefix), tensor_names=[tensor], shape_and_slices=[specification], dtypes=[dtype]
        )
    return value


def _groups(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    group: list[Piece] = []
    num_bytes = 0
    for piece in pieces:
        if group and num_bytes + piece.num_bytes > BYTES_AT_ONCE:
            yield group
            group, num_bytes = [], 0
        group.append(piece)
        num_bytes += piece.num_bytes
    yield group
