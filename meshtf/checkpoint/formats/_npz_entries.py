"""Checks the entries of an .npz archive before any is read: their names, headers and sizes.

An archive may come from an untrusted source. A few bytes in it may claim to be an array of many gigabytes, so that
reading it would take all memory. A stored byte expands to one byte, and a deflated byte to at most 1,032 bytes. An
entry that claims more is refused.
"""

from __future__ import annotations

import dataclasses
import math
import zipfile
from pathlib import PurePosixPath
from typing import IO

import numpy as np

from meshtf.checkpoint._manifest_content import MOST_DIMENSIONS, is_count, is_name, shown

_EXPANSIONS = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
"""The most bytes to which one byte can expand. The eight bits of a deflated byte can repeat 258 bytes four times."""

_LONGEST_HEADER = 10_000
"""The most characters of a header, as in NumPy: parsing longer Python literals is not safe."""


@dataclasses.dataclass(frozen=True)
class NpyHeader:
    """The shape and the type of an array, and the number of bytes before its elements."""

    shape: tuple[int, ...]
    dtype: np.dtype
    length: int

    @property
    def num_bytes(self) -> int:
        """The bytes of the elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.shape))}] {self.dtype}"


def name_of(entry: str) -> str:
    """Returns the name of an entry's array.

    Raises:
      ValueError: if no tensor can have this name, or if no file inside a folder can have it.
    """
    name = entry.removesuffix(".npy")
    path = PurePosixPath(name)
    if not is_name(name) or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"an array is called {shown(name)}, which cannot be the name of a variable")
    return name


def read_header(file: IO[bytes]) -> NpyHeader:
    """Reads the header before an array's elements.

    Raises:
      ValueError, and other errors of NumPy: if there is none, or if a value in it is impossible.
    """
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array has version {version[0]}.{version[1]} of NumPy's format; meshtf reads 1.0 and 2.0")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file, max_header_size=_LONGEST_HEADER)
    if len(shape) > MOST_DIMENSIONS or not all(map(is_count, shape)):
        raise ValueError(f"an array has shape {shown(shape)}, which no array can have")
    return NpyHeader(shape, dtype, file.tell())


def check_can_be_held(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, header: NpyHeader, name: str) -> None:
    """Raises ValueError if an array and its entry differ in size, or if the entry's bytes cannot expand to so many."""
    there = entry.file_size - header.length
    if header.num_bytes != there:
        raise ValueError(f"array {shown(name)} is {header}, which takes {header.num_bytes:,} bytes, but has {there:,}")
    if entry.compress_type not in _EXPANSIONS:
        raise ValueError(f"array {shown(name)} is compressed in a way that NumPy does not write: {entry.compress_type}")
    held = min(entry.compress_size, archive.start_dir - entry.header_offset)
    most = held * _EXPANSIONS[entry.compress_type]
    if entry.file_size > most:
        raise ValueError(
            f"array {shown(name)} should have {entry.file_size:,} bytes, but its {held:,} in the archive can "
            f"expand to at most {most:,}"
        )
