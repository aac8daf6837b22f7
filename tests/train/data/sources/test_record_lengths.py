"""Lengths in TFRecord files that lie, of which TensorFlow would die: each ends in a message that names the record."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from pathlib import Path

import pytest
import tensorflow as tf

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import TfRecords
from meshtf.train.data.sources.record_lengths import longest_record

LARGEST = 2**64 - 1


def checksum(data: bytes) -> int:
    """CRC-32C (Castagnoli), masked as in TFRecords."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data: bytes, length: int | None = None) -> bytes:
    """A record, which may say that it has another length, with the right checksum of that."""
    said = struct.pack("<Q", len(data) if length is None else length)
    return said + struct.pack("<I", checksum(said)) + data + struct.pack("<I", checksum(data))


EXAMPLE = tf.train.Example(
    features=tf.train.Features(feature={"text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"one"]))})
).SerializeToString()
GOOD = record(EXAMPLE)

FILES: dict[str, tuple[bytes, str]] = {
    "a length of a terabyte": (record(EXAMPLE, 2**40), "record 1 gives its length as 1,099,511,627,776 bytes"),
    "a length beyond all": (
        record(EXAMPLE, 2**62),
        "record 1 gives its length as 4,611,686,018,427,387,904 bytes",
    ),
    "the largest length": (GOOD + record(EXAMPLE, LARGEST), "record 2 gives its length as 18,446,744,073,709,551,615"),
    "a length that overflows": (
        record(EXAMPLE, LARGEST - 3),
        "record 1 gives its length as 18,446,744,073,709,551,612",
    ),
    "a length beyond the file": (GOOD + record(EXAMPLE, 2**30), "record 2 is cut short"),
    "a length that is one more": (record(EXAMPLE, len(EXAMPLE) + 1), "record 1 is cut short"),
    "half a header": (GOOD + GOOD[:7], "record 2 is cut short"),
    "half a record": (GOOD + GOOD[:-1], "record 2 is cut short"),
    "text": (b"once upon a time there was a file of text", "record 1 gives its length as"),
    "zeros": (bytes(64), "orrupted record"),
    "another value": (GOOD.replace(b"one", b"two"), "orrupted record"),
}


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("file", FILES)
def test_a_file_that_lies(tmp_path: Path, file: str, compression: str) -> None:
    content, words = FILES[file]
    path = tmp_path / "1.tfrecord"
    path.write_bytes({"": bytes, "GZIP": gzip.compress, "ZLIB": zlib.compress}[compression](content))
    with pytest.raises(ConfigurationError) as caught:
        list(TfRecords(str(path), compression=compression).documents())  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith(f"the TFRecord file {path} cannot be read: ")
    assert words in message
    assert message.endswith(
        f"It is damaged, it is not a TFRecord file, or it was not written with TfRecords.compression ({compression!r})."
    )


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
@pytest.mark.parametrize("damage", ["not compressed", "cut short", "changed", "empty"])
def test_what_is_compressed_may_be_broken(tmp_path: Path, compression: str, damage: str) -> None:
    packed = {"GZIP": gzip.compress, "ZLIB": zlib.compress}[compression](GOOD)
    changed = packed[:20] + bytes([packed[20] ^ 255]) + packed[21:]
    content = {"not compressed": GOOD, "cut short": packed[:-9], "changed": changed, "empty": b""}[damage]
    (tmp_path / "1.tfrecord").write_bytes(content)
    source = TfRecords(str(tmp_path / "1.tfrecord"), compression=compression)  # type: ignore[arg-type]
    if damage == "empty" and compression == "GZIP":
        assert list(source.documents()) == []
        return
    with pytest.raises(ConfigurationError, match=r"1\.tfrecord cannot be read: .*"):
        list(source.documents())


def test_a_bomb_is_passed_over_without_being_kept(tmp_path: Path) -> None:
    """Of 200 MB of zeros, that are 200 kB compressed, no more than a piece is in memory."""
    with gzip.open(tmp_path / "bomb", "wb", compresslevel=1) as file:
        header = struct.pack("<Q", 200 << 20)
        file.write(header + struct.pack("<I", checksum(header)))
        for _ in range(100):
            file.write(bytes(1 << 20))
    with pytest.raises(ValueError, match="record 1 is cut short"):
        longest_record(tmp_path / "bomb", "GZIP")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.tfrecord")
    with pytest.raises(ConfigurationError, match=r"1\.tfrecord matches, but is a named pipe, not a file"):
        list(TfRecords(str(tmp_path / "*")).documents())
