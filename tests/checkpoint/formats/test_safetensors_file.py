"""Headers of safetensors files that cannot be: each ends in a message that names the file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from meshtf.bin.checkpoint import main
from meshtf.checkpoint._box import Box
from meshtf.checkpoint.formats.safetensors_file import SafetensorsFile
from meshtf.errors import CheckpointError, DamagedCheckpointError

REMEDY = "it is cut short or damaged, or was never such a file; copy it again from its source"


def tensor(dtype: Any = "F32", shape: Any = (6,), begin: Any = 0, end: Any = 24) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def with_about(**about: Any) -> dict[str, Any]:
    return {"__metadata__": {"meshtf": json.dumps(about)}, "a": tensor()}


def write(path: Path, header: object, data: bytes = bytes(24), length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


TWICE = b'{"a":{"dtype":"I32","shape":[6],"data_offsets":[0,24]},"a":{"dtype":"F32","shape":[6],"data_offsets":[0,24]}}'

HEADERS: dict[str, tuple[object, str]] = {
    "a negative offset": ({"a": tensor(begin=-4, end=20)}, "invalid value: integer `-4`"),
    "an offset as text": ({"a": tensor(begin="0")}, 'invalid type: string "0"'),
    "offsets that overlap": ({"a": tensor(), "b": tensor()}, "invalid offset for tensor"),
    "offsets in the wrong order": ({"a": tensor(begin=24, end=0)}, "invalid offset for tensor"),
    "a span below the shape": ({"a": tensor(shape=[7])}, "invalid shape, data type, or offset"),
    "a span above the shape": ({"a": tensor(shape=[5])}, "invalid shape, data type, or offset"),
    "a hole": ({"a": tensor(shape=[2], end=8), "b": tensor(shape=[2], begin=16)}, "invalid offset for tensor `b`"),
    "bytes behind the last": ({"a": tensor(shape=[2], end=8)}, "file not fully covered"),
    "more than the file has": ({"a": tensor(shape=[12], end=48)}, "file not fully covered"),
    "a shape beyond 64 bits": ({"a": tensor(shape=[2**31] * 3)}, "overflow computing buffer size"),
    "a negative shape": ({"a": tensor(shape=[-6])}, "invalid value: integer `-6`"),
    "an unknown type": ({"a": tensor(dtype="Q99")}, "unknown variant `Q99`"),
    "a type that TensorFlow lacks": (
        {"a": tensor("F8_E8M0", [24])},
        'tensor "a" is of type F8_E8M0, which no variable',
    ),
    "a tensor of no name": ({"": tensor()}, 'a tensor is called "", which cannot be the name of a variable'),
    "a tensor with NUL": ({"a\0": tensor()}, 'a tensor is called "a\\u0000", which cannot be the name of a variable'),
    "a name twice": (TWICE, '"a" appears twice in its header'),
    "no type": ({"a": {"shape": [6], "data_offsets": [0, 24]}}, "missing field `dtype`"),
    "no shape": ({"a": {"dtype": "F32", "data_offsets": [0, 24]}}, "missing field `shape`"),
    "no offsets": ({"a": {"dtype": "F32", "shape": [6]}}, "missing field `data_offsets`"),
    "a tensor is a number": ({"a": 7}, "invalid type: integer `7`"),
    "a list": ([], "cannot be read as a safetensors file"),
    "metadata is a number": ({"__metadata__": 3, "a": tensor()}, "invalid type: integer `3`"),
    "no JSON": (b"{", "invalid JSON in header"),
    "deep": (b"[" * 100_000, "invalid JSON in header"),
    "not UTF-8": (b'{"\xff":1}', "invalid UTF-8 in header"),
    "a step as text": (with_about(step="x"), 'its step is "x", and must be a whole number, 0 or more'),
    "a negative step": (with_about(step=-3), "its step is -3, and must be a whole number, 0 or more"),
    "a state as text": (with_about(state="x"), 'its state is "x", and must be an object'),
    "about is a list": (
        {"__metadata__": {"meshtf": "[]"}, "a": tensor()},
        "its metadata are [], not an object",
    ),
    "about is no JSON": ({"__metadata__": {"meshtf": "{"}, "a": tensor()}, "its metadata are not JSON: "),
    "about is deep": ({"__metadata__": {"meshtf": "[" * 100_000}, "a": tensor()}, "its metadata are not JSON: "),
}


@pytest.mark.parametrize("header", HEADERS)
def test_headers_that_cannot_be(tmp_path: Path, header: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, words = HEADERS[header]
    path = write(tmp_path / "bad.safetensors", content)
    assert main(["meshtf-checkpoint", "convert", str(path), f"--output={tmp_path / 'out'}"]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"meshtf-checkpoint: error: {path} cannot be read as a safetensors file: ")
    assert words in message
    assert message.endswith(f": {REMEDY}\n")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("length", [0, 3, 25, 2**31, 2**63, 2**64 - 1])
def test_a_header_of_another_length(tmp_path: Path, length: int) -> None:
    path = write(tmp_path / "bad.safetensors", {"a": tensor()}, length=length)
    with pytest.raises(CheckpointError, match=r"bad\.safetensors cannot be read as a safetensors file: .*header"):
        SafetensorsFile.open(path)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 20])
def test_a_file_that_ends_in_its_header(tmp_path: Path, size: int) -> None:
    path = write(tmp_path / "bad.safetensors", {"a": tensor()})
    os.truncate(path, size)
    with pytest.raises(CheckpointError, match=r"bad\.safetensors cannot be read as a safetensors file: "):
        SafetensorsFile.open(path)


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "zero.safetensors").symlink_to("/dev/zero")
    (tmp_path / "folder.safetensors").mkdir()
    for name, kind in (("pipe", "a named pipe"), ("zero", "a device"), ("folder", "a folder")):
        with pytest.raises(
            CheckpointError, match=rf"{name}\.safetensors cannot be read .*: it is {kind}, not a regular"
        ):
            SafetensorsFile.open(tmp_path / f"{name}.safetensors")


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    write(tmp_path / "blob", {"a": tensor()})
    (tmp_path / "link.safetensors").symlink_to(tmp_path / "blob")
    assert list(SafetensorsFile.open(tmp_path / "link.safetensors").tensors) == ["a"]


def test_parts_of_every_kind(tmp_path: Path) -> None:
    """Of bfloat16, of which NumPy knows nothing; without elements; without dimensions."""
    values = tf.cast(tf.reshape(tf.range(6), [2, 3]), tf.bfloat16)
    header = {"b": tensor("BF16", [2, 3], 0, 12), "e": tensor("F32", [0, 3], 12, 12), "s": tensor("F64", [], 12, 20)}
    file = SafetensorsFile.open(
        write(tmp_path / "a.safetensors", header, values.numpy().tobytes() + np.float64(2.5).tobytes())
    )
    np.testing.assert_array_equal(file.read("b"), values)
    np.testing.assert_array_equal(file.read("b", Box((1, 0), (1, 2))), values[1:, :2])
    assert (file.read("e").shape, file.read("e").dtype) == ([0, 3], tf.float32)
    np.testing.assert_array_equal(file.read("s"), np.float64(2.5), strict=True)


def test_values_that_are_gone_since(tmp_path: Path) -> None:
    file = SafetensorsFile.open(write(tmp_path / "a.safetensors", {"a": tensor()}))
    with pytest.raises(DamagedCheckpointError, match=r'tensor "a" of .*a\.safetensors cannot be read: '):
        file.read("a", Box((5,), (7,)))
