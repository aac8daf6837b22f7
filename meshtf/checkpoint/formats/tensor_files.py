"""Tensors in TensorFlow's checkpoint format, by slice."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.chunks import WHOLE_TYPES, Chunk
from meshtf.files.unicode_text import is_unicode

BYTES_AT_ONCE = 128 << 20
"""The number of bytes that TensorFlow receives at once. Saving needs this much memory beside the slices."""

_PATTERN = frozenset("*?[]\\")


def write_chunks(
    prefix: Path, chunks: Iterable[Chunk], value_of: Callable[[Chunk], tf.Tensor], part: str = "part"
) -> None:
    """Writes `<prefix>.index` and `<prefix>.data-...`. Each value is only in memory while it is being written.

    The names of temporary files begin with `part`.

    Raises:
      tf.errors.OpError, OSError: if they cannot be written.
    """
    parts = []
    with tf.init_scope(), tf.device("CPU:0"):
        for number, group in enumerate(_groups(chunks)):
            parts.append(prefix.with_name(f"{part}_{number:05d}"))
            tf.raw_ops.SaveV2(
                prefix=os.fsencode(parts[-1]),
                tensor_names=[chunk.tensor for chunk in group],
                shape_and_slices=[chunk.box.specification(chunk.shape) for chunk in group],
                tensors=[value_of(chunk) for chunk in group],
            )
    merge(parts, prefix)


def merge(parts: Sequence[Path], prefix: Path) -> None:
    """Merges several checkpoints into one, and deletes them."""
    with tf.init_scope(), tf.device("CPU:0"):
        tf.raw_ops.MergeV2Checkpoints(
            checkpoint_prefixes=list(map(os.fsencode, parts)),
            destination_prefix=os.fsencode(prefix),
            delete_old_dirs=False,
        )


def read_box(prefix: Path, tensor: str, shape: Sequence[int], dtype: tf.DType, box: Box) -> tf.Tensor:
    """Returns a part of a saved tensor, whatever slices it was saved in.

    Raises:
      tf.errors.OpError: if it is missing, has another shape or type, or is damaged.
      OSError: if its folder cannot be opened.
    """
    if dtype in WHOLE_TYPES:
        return _read(prefix, tensor, "", dtype)[box.slices]
    return _read(prefix, tensor, box.specification(shape), dtype)


def _read(prefix: Path, tensor: str, specification: str, dtype: tf.DType) -> tf.Tensor:
    with tf.init_scope(), tf.device("CPU:0"), plain_path(prefix) as plain:
        (value,) = tf.raw_ops.RestoreV2(
            prefix=plain, tensor_names=[tensor], shape_and_slices=[specification], dtypes=[dtype]
        )
    return value


@contextlib.contextmanager
def plain_path(prefix: Path) -> Iterator[str]:
    """Yields a path to the same files that TensorFlow can read. It treats a path as a pattern, and as UTF-8.

    Raises:
      OSError: if the folder cannot be opened.
    """
    if is_unicode(str(prefix)) and not _PATTERN.intersection(str(prefix)):
        yield str(prefix)
        return
    folder = os.open(prefix.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{prefix.name}"
    finally:
        os.close(folder)


def _groups(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    group: list[Chunk] = []
    num_bytes = 0
    for chunk in chunks:
        if group and num_bytes + chunk.num_bytes > BYTES_AT_ONCE:
            yield group
            group, num_bytes = [], 0
        group.append(chunk)
        num_bytes += chunk.num_bytes
    yield group
