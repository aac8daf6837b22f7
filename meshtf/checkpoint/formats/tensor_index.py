"""Reads and checks the index of a TensorFlow checkpoint. A slice that starts before 0 would make TensorFlow crash.

The index is a table in LevelDB's format. First come blocks of keys and values, then a block with the places of these
blocks, and last a footer with the place of that block. A key omits the beginning that it shares with the key before
it. So "layer_0/w" and "layer_0/b" are stored as (shares 0, "layer_0/b") and (shares 8, "w"), each with its value.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from pathlib import Path

from google.protobuf.message import DecodeError

from meshtf.checkpoint._box import Box
from meshtf.files.regular_file import read_regular
from meshtf.tensorflow_private.bundle_protos import BundleEntryProto, BundleHeaderProto

LARGEST_INDEX = 1 << 30
"""The most bytes of an index. The index of a million chunks has 100 million."""

_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER_BYTES = 48
_LONGEST_KEY = 1 << 16


@dataclasses.dataclass(frozen=True, slots=True)
class StoredBox:
    """The place of a part of a tensor: its bytes in one of the data files."""

    box: Box
    shard: int
    start: int
    stop: int


def stored_boxes(path: Path) -> tuple[dict[str, list[StoredBox]], int]:
    """Returns the place of each part of each tensor, by tensor, and the number of data files.

    Raises:
      OSError, ValueError: as `check_index`.
    """
    try:
        entries = dict(_entries(read_regular(path, LARGEST_INDEX, follows_links=False)))
        header = BundleHeaderProto.FromString(entries.pop(b"", b""))
        whole = {key: BundleEntryProto.FromString(value) for key, value in entries.items()}
        return {key.decode(): list(_boxes(key, whole)) for key in whole if key[:1] != b"\0"}, header.num_shards
    except (IndexError, struct.error, DecodeError, KeyError, UnicodeDecodeError):
        raise ValueError("is not an index of TensorFlow's") from None


def _boxes(key: bytes, entries: dict[bytes, BundleEntryProto]) -> Iterator[StoredBox]:
    entry = entries[key]
    shape = [dim.size for dim in entry.shape.dim]
    if not entry.slices:
        yield StoredBox(Box.whole(shape), entry.shard_id, entry.offset, entry.offset + entry.size)
    for tensor_slice in entry.slices:
        extents = [(e.start, e.length if e.HasField("length") else -1) for e in tensor_slice.extent]
        own = entries[_slice_key(key, extents)]
        sizes = [size if length < 0 else length for (_, length), size in zip(extents, shape, strict=True)]
        box = Box(tuple(start for start, _ in extents), tuple(sizes))
        yield StoredBox(box, own.shard_id, own.offset, own.offset + own.size)


def _slice_key(name: bytes, extents: list[tuple[int, int]]) -> bytes:
    """Returns the key of a slice (TensorFlow's `EncodeTensorNameSlice`).

    It has 0, the name, the number of dimensions, and the start and length in each. The bytes of a number sort as the
    numbers do.
    """
    escaped = name.replace(b"\xff", b"\xff\0").replace(b"\0", b"\0\xff")
    count = bytes([1, len(extents)]) if extents else b"\0"
    return b"\0" + escaped + b"\0\1" + count + b"".join(_ordered(n) for pair in extents for n in pair)


def _ordered(number: int) -> bytes:
    """Returns an integer in as few bytes as possible. The first bits tell the number of bytes.

    At the front, as many bits as there are bytes are set, or clear if the integer is negative.
    """
    length = ((number if number >= 0 else ~number).bit_length()) // 7 + 1
    sign_extended = number.to_bytes(10, "big", signed=True)[-length:]
    front = (((1 << length) - 1) << (16 - length)).to_bytes(2, "big") + b"\0" * 8
    return bytes(a ^ b for a, b in zip(sign_extended, front[:length], strict=True))


def check_index(path: Path) -> None:
    """Checks the slices of every entry. TensorFlow compares the checksums.

    Raises:
      OSError: if it cannot be read.
      ValueError: if it is no index, or has a slice that no tensor can have. The message says what is wrong.
    """
    content = read_regular(path, LARGEST_INDEX, follows_links=False)
    try:
        for key, value in _entries(content):
            if key:  # the entry with an empty key describes the whole index
                _check_entry(key, BundleEntryProto.FromString(value))
    except (IndexError, struct.error, DecodeError):
        raise ValueError("is not an index of TensorFlow's") from None


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
        raise ValueError("is not an index of TensorFlow's")
    footer = content[-_FOOTER_BYTES:]
    _, at = _place(footer, 0)
    for _, place in _block(content, _place(footer, at)[0]):
        yield from _block(content, _place(place, 0)[0])


def _place(data: bytes, at: int) -> tuple[slice, int]:
    """Returns the range of a block's bytes, and the position after its numbers."""
    start, at = _number(data, at)
    size, at = _number(data, at)
    return slice(start, start + size), at


def _block(content: bytes, place: slice) -> Iterator[tuple[bytes, bytes]]:
    if place.stop > len(content) - _FOOTER_BYTES or content[place.stop] != 0:
        raise ValueError("is not an index of TensorFlow's, or is compressed")
    block, key, at = content[place], b"", 0
    end = len(block) - 4 * (1 + struct.unpack("<I", block[-4:])[0])
    while at < end:
        shared, at = _number(block, at)
        own, at = _number(block, at)
        size, at = _number(block, at)
        if shared > len(key) or shared + own > _LONGEST_KEY or at + own + size > end:
            raise ValueError("is not an index of TensorFlow's")
        key = key[:shared] + block[at : at + own]
        yield key, block[at + own : at + own + size]
        at += own + size


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number whose bytes hold seven bits each, and the position after it."""
    number = shift = 0
    while data[at] & 0x80:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if shift > 63:
            raise ValueError("is not an index of TensorFlow's")
    return number | data[at] << shift, at + 1
