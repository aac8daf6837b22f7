"""Indexes of TensorFlow's that anyone can write, with right checksums; TensorFlow dies of some."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from meshtf.checkpoint.formats.tensor_index import check_index
from meshtf.tensorflow_private.bundle_protos import BundleEntryProto

MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)


def number(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + number(value >> 7)


def block(*entries: tuple[bytes, bytes]) -> bytes:
    body = b"".join(number(0) + number(len(k)) + number(len(v)) + k + v for k, v in entries)
    return body + struct.pack("<II", 0, 1)


def table(*entries: tuple[bytes, bytes], compression: int = 0) -> bytes:
    data = block(*entries)
    places = block((b"\xff", number(0) + number(len(data))))
    start = len(data) + 5
    footer = number(0) + number(0) + number(start) + number(len(places))
    return data + bytes([compression]) + bytes(4) + places + bytes(5) + footer.ljust(40, b"\0") + MAGIC


def entry(*extents: tuple[int, int | None]) -> bytes:
    made = BundleEntryProto()
    for size in (2, 3):
        made.shape.dim.add(size=size)
    tensor_slice = made.slices.add()
    for start, length in extents:
        extent = tensor_slice.extent.add(start=start)
        if length is not None:
            extent.length = length
    return made.SerializeToString()


SLICES = {
    "a negative start": [(-5, 2), (0, 3)],
    "a negative length": [(0, -2), (0, 3)],
    "no length": [(0, 0), (0, 3)],
    "beyond the shape": [(1, 2), (0, 3)],
    "beyond 64 bits": [(2**62, 2**62), (0, 3)],
    "another rank": [(0, 2)],
}


@pytest.mark.parametrize("extents", SLICES)
def test_slices_that_cannot_be(tmp_path: Path, extents: str) -> None:
    (tmp_path / "index").write_bytes(table((b"", b""), (b"w", entry(*SLICES[extents]))))
    with pytest.raises(ValueError, match=r"has a slice of b'w' that is not inside its shape \[2, 3\]"):
        check_index(tmp_path / "index")


GOOD = table((b"", b""), (b"v", entry((0, None), (0, None))), (b"w", entry((0, 2), (1, 2))))

NONE = {
    "empty": b"",
    "no footer": GOOD[:-1],
    "a footer alone": bytes(40) + MAGIC,
    "a place outside": b"\xff" * 9 + b"\x7f" + bytes(30) + MAGIC,
    "an endless number": b"\xff" * 40 + MAGIC,
    "a compressed block": table((b"", b""), (b"w", entry((0, 2), (1, 2))), compression=1),
    "no entry": table((b"", b""), (b"w", b"\xff\xff")),
    "a key that shares too much": GOOD.replace(number(0) + number(1), number(9) + number(1), 1),
}


@pytest.mark.parametrize("content", NONE)
def test_what_is_no_index(tmp_path: Path, content: str) -> None:
    (tmp_path / "index").write_bytes(NONE[content])
    with pytest.raises(ValueError, match=r"is not an index of TensorFlow's"):
        check_index(tmp_path / "index")


def test_an_index_that_can_be(tmp_path: Path) -> None:
    (tmp_path / "index").write_bytes(GOOD)
    check_index(tmp_path / "index")
