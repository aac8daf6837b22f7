"""A partial copy of a checkpoint on remote storage. Parts are fetched to this machine when they are read."""

from __future__ import annotations

import os

from meshtf.checkpoint._box import Box
from meshtf.checkpoint._manifest_content import INDEX
from meshtf.checkpoint.formats.tensor_index import StoredBox, stored_boxes
from meshtf.files.remote.remote_folder import RemoteFolder
from meshtf.files.remote.working_folder import PassingFolder


class PartialCopy:
    """A folder with the small files of a checkpoint, and data files with holes where parts have not been read.

    TensorFlow reads from these files and compares its checksums, as for a checkpoint on this machine.

    Args:
      remote: the checkpoint's folder.
      passing: the folder for the copy.
      sizes: the sizes of the data files by name, from the manifest.
      prefix: the beginning of their names.

    Raises:
      ValueError: if the index is not one.
      OSError: if the storage cannot be read, or the copy not written.
    """

    def __init__(self, remote: RemoteFolder, passing: PassingFolder, sizes: dict[str, int], prefix: str) -> None:
        self.remote, self._passing, self._prefix = remote, passing, prefix
        for name, size in sizes.items():
            with (passing.path / name).open("wb") as file:
                file.truncate(size)
        self._stored, self._num_shards = stored_boxes(passing.path / INDEX)
        self._here: set[StoredBox] = set()

    def bring(self, tensor: str, box: Box) -> None:
        """Fetches the bytes that TensorFlow reads for a part of a tensor.

        Raises:
          FileNotFoundError: if the checkpoint has been deleted.
          OSError: if the storage cannot be read, or the copy not written.
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
