"""Whether TensorFlow's index of a checkpoint can be true: of a slice that starts before 0 TensorFlow dies.

The index is a table in LevelDB's format: blocks of keys, each without what it shares with the one before, and values;
then a block with the places of these blocks, and a footer with the place of that one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto

from meshtf.files.regular_file import read_regular

LARGEST_INDEX = 1 << 30
"""Bytes. That of a million chunks has 100 million."""

_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER_BYTES = 48
_LONGEST_KEY = 1 << 16


def check_index(path: Path) -> None:
    """Looks at the slices of every entry. Checksums are TensorFlow's to compare.

    Raises:
      OSError: it cannot be read.
      ValueError: it is no index, or has a slice that no tensor can have; says what is wrong.
    """
    content = read_regular(path, LARGEST_INDEX, follows_links=False)
    try:
        for key, value in _entries(content):
            if key:  # the first is about the whole
                _check_entry(key, BundleEntryProto.FromString(value))
    except (IndexError, struct.error, DecodeError):
        raise ValueError("is no index of TensorFlow's") from None


def _check_entry(key: bytes, entry: BundleEntryProto) -> None:
    sizes = [dim.size for dim in entry.shape.dim]
    for tensor_slice in entry.slices:
        extents = tensor_slice.extent
        are_inside = len(extents) == len(sizes) and all(
            e.start >= 0 and (not e.HasField("length") or 1 <= e.length <= size - e.start)
            for e, size in zip(extents, sizes, strict=True)
        )
        if not are_inside:
            raise ValueError(f"has a slice of {key!r} that is not inside its shape {sizes}")


def _entries(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(content) < _FOOTER_BYTES or content[-len(_MAGIC) :] != _MAGIC:
        raise ValueError("is no index of TensorFlow's")
    footer = content[-_FOOTER_BYTES:]
    _, at = _place(footer, 0)
    for _, place in _block(content, _place(footer, at)[0]):
        yield from _block(content, _place(place, 0)[0])


def _place(data: bytes, at: int) -> tuple[slice, int]:
    """The bytes of a block, and where the next number stands."""
    start, at = _number(data, at)
    size, at = _number(data, at)
    return slice(start, start + size), at


def _block(content: bytes, place: slice) -> Iterator[tuple[bytes, bytes]]:
    if place.stop > len(content) - _FOOTER_BYTES or content[place.stop] != 0:
        raise ValueError("is no index of TensorFlow's, or is compressed")
    block, key, at = content[place], b"", 0
    end = len(block) - 4 * (1 + struct.unpack("<I", block[-4:])[0])
    while at < end:
        shared, at = _number(block, at)
        own, at = _number(block, at)
        size, at = _number(block, at)
        if shared > len(key) or shared + own > _LONGEST_KEY or at + own + size > end:
            raise ValueError("is no index of TensorFlow's")
        key = key[:shared] + block[at : at + own]
        yield key, block[at + own : at + own + size]
        at += own + size


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number in bytes of seven bits, and where the next one stands."""
    number = shift = 0
    while data[at] & 0x80:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if shift > 63:
            raise ValueError("is no index of TensorFlow's")
    return number | data[at] << shift, at + 1
