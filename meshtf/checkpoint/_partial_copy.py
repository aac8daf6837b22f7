"""A checkpoint of remote storage, of which the parts that are read come to this machine, when they are."""

from __future__ import annotations

import os

from meshtf.checkpoint._box import Box
from meshtf.checkpoint._manifest_content import INDEX
from meshtf.checkpoint.formats.tensor_index import StoredBox, stored_boxes
from meshtf.files.remote.remote_folder import RemoteFolder
from meshtf.files.remote.working_folder import PassingFolder


class PartialCopy:
    """A folder with the small files of a checkpoint, and files of data that have holes where nothing was read yet.

    TensorFlow reads from these and compares its checksums, as it does of a checkpoint that was always here.

    Args:
      remote: the checkpoint's folder.
      passing: the folder for the copy.
      sizes: of the files of data, by name, as the manifest has them.
      prefix: with which their names begin.

    Raises:
      ValueError: the index is not one.
      OSError: the storage cannot be read, or the copy not written.
    """

    def __init__(self, remote: RemoteFolder, passing: PassingFolder, sizes: dict[str, int], prefix: str) -> None:
        self.remote, self._passing, self._prefix = remote, passing, prefix
        for name, size in sizes.items():
            with (passing.path / name).open("wb") as file:
                file.truncate(size)
        self._stored, self._num_shards = stored_boxes(passing.path / INDEX)
        self._here: set[StoredBox] = set()

    def bring(self, tensor: str, box: Box) -> None:
        """Brings what TensorFlow reads for a part of a tensor.

        Raises:
          FileNotFoundError: the checkpoint is there no more.
          OSError: the storage cannot be read, or the copy not written.
        """
        for stored in self._stored.get(tensor, ()):
            if stored in self._here or not _overlap(stored.box, box):
                continue
            name = f"{self._prefix}.data-{stored.shard:05d}-of-{self._num_shards:05d}"
            content = self.remote.read(name, stored.start, stored.stop) if stored.stop > stored.start else b""
            descriptor = os.open(self._passing.path / name, os.O_WRONLY | os.O_NOFOLLOW)
            with os.fdopen(descriptor, "wb") as file:
                file.seek(stored.start)
                file.write(content)
            self._here.add(stored)


def _overlap(a: Box, b: Box) -> bool:
    pairs = zip(a.start, a.size, b.start, b.size, strict=True)
    return all(s < t + m and t < s + n for s, n, t, m in pairs)
