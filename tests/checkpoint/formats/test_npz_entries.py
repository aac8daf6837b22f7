"""Archives of arrays that cannot be: each ends in a message that names the file, and takes no memory first."""

from __future__ import annotations

import io
import json
import os
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from meshtf.bin.checkpoint import main
from meshtf.checkpoint.formats.npz_file import NpzFile
from meshtf.errors import CheckpointError, DamagedCheckpointError

VALUES = np.arange(6, dtype=np.float32)


def npy(
    shape: Any = (6,), descr: str = "'<f4'", data: bytes = VALUES.tobytes(), version: tuple[int, int] = (1, 0)
) -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    width = 2 if version == (1, 0) else 4
    return b"\x93NUMPY" + bytes(version) + len(header).to_bytes(width, "little") + header + data


def about(**content: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(json.dumps(content)))
    return file.getvalue()


def archive(path: Path, *entries: tuple[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a name that is there twice
        with zipfile.ZipFile(path, "w", compression) as file:
            for name, content in entries:
                file.writestr(name, content)
    return path


def own(content: bytes) -> list[tuple[str, bytes]]:
    return [("a.npy", content)]


ENTRIES: dict[str, tuple[list[tuple[str, bytes]], str]] = {
    "a shape beyond memory": (
        own(npy((10**13,))),
        'array "a" is [10000000000000] float32, which takes 40,000,000,000',
    ),
    "a shape beyond 64 bits": (own(npy((2**62, 2**62))), "but has 24"),
    "a shape of 2^64": (own(npy((2**64,))), "an array has shape [18446744073709551616], which no array can have"),
    "a negative shape": (own(npy((-6,))), "an array has shape [-6], which no array can have"),
    "a shape of text": (own(npy("('a',)")), "shape is not valid"),
    "a shape of truth": (own(npy("(True,)")), "an array has shape [true], which no array can have"),
    "too many dimensions": (own(npy((1,) * 300)), "which no array can have"),
    "a shape below the data": (own(npy((5,))), 'array "a" is [5] float32, which takes 20 bytes, but has 24'),
    "a shape above the data": (own(npy((7,))), 'array "a" is [7] float32, which takes 28 bytes, but has 24'),
    "objects": (
        own(npy((1,), "'|O'", b"cos\nsystem\n(S'false'\ntR.")),
        "is of type object, which no variable can have",
    ),
    "text": (own(npy((6,), "'<U1'")), "is of type <U1, which no variable can have"),
    "dates": (own(npy((3,), "'<M8[s]'")), "which no variable can have"),
    "records": (own(npy((3,), "[('x', '<f4'), ('y', '<f4')]")), "which no variable can have"),
    "long doubles": (own(npy((1,), "'<f16'", bytes(16))), "is of type float128, which no variable can have"),
    "an unknown type": (own(npy((6,), "'<q9'")), "cannot be read as an .npz file"),
    "code in the header": (own(npy("__import__('os').system('false')")), "cannot be read as an .npz file"),
    "a deep header": (own(npy("(" * 9_000)), "cannot be read as an .npz file"),
    "a long header": (own(npy("(" + "1," * 6_000 + ")")), "cannot be read as an .npz file"),
    "a header cut short": (own(npy()[:20]), "cannot be read as an .npz file"),
    "no array": (own(b"hello"), "cannot be read as an .npz file"),
    "an empty entry": (own(b""), "cannot be read as an .npz file"),
    "version 3": (own(npy(version=(3, 0))), "an array has version 3.0 of NumPy's format; meshtf reads 1.0 and 2.0"),
    "version 9": (own(npy(version=(9, 9))), "an array has version 9.9 of NumPy's format; meshtf reads 1.0 and 2.0"),
    "a name outside": (
        [("../../a.npy", npy())],
        'an array is called "../../a", which cannot be the name of a variable',
    ),
    "an absolute name": (
        [("/etc/a.npy", npy())],
        'an array is called "/etc/a", which cannot be the name of a variable',
    ),
    "no name": ([(".npy", npy())], 'an array is called "", which cannot be the name of a variable'),
    "a name twice": ([("a.npy", npy()), ("a.npy", npy())], 'array "a" appears twice'),
    "a name with and without end": ([("a.npy", npy()), ("a", npy())], 'array "a" appears twice'),
    "a step as text": ([("__meshtf__.npy", about(step="x"))], 'its step is "x", and must be a whole number, 0 or more'),
    "a state as list": ([("__meshtf__.npy", about(state=[]))], "its state is [], and must be an object"),
    "types as number": ([("__meshtf__.npy", about(bfloat16=3))], "its list of bfloat16 tensors is 3"),
    "a narrow type of integers": (
        [("__meshtf__.npy", about(bfloat16=["a"])), ("a.npy", npy(descr="'<i4'"))],
        'array "a" should be bfloat16 kept as float32, but is of type int32',
    ),
    "about is an array": (
        [("__meshtf__.npy", npy())],
        '"__meshtf__" must be a text that meshtf wrote, not [6] float32',
    ),
    "about is pickled": ([("__meshtf__.npy", npy((), "'|O'", b"cos\n"))], "cannot be read as an .npz file"),
    "about is too long": ([("__meshtf__.npy", npy((), "'<U99999999'"))], "cannot be read as an .npz file"),
}


@pytest.mark.parametrize("entries", ENTRIES)
def test_arrays_that_cannot_be(tmp_path: Path, entries: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, words = ENTRIES[entries]
    path = archive(tmp_path / "bad.npz", *content)
    assert main(["meshtf-checkpoint", "convert", str(path), f"--output={tmp_path / 'out'}"]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"meshtf-checkpoint: error: {path} cannot be read as an .npz file: ")
    assert words in message
    assert message.endswith("copy it again from its source\n")
    assert list(tmp_path.iterdir()) == [path]


def central(path: Path, at: int, value: bytes) -> None:
    """Changes the entry of the archive's directory, from this byte on."""
    content = bytearray(path.read_bytes())
    start = content.index(b"PK\x01\x02") + at
    content[start : start + len(value)] = value
    path.write_bytes(content)


DIRECTORIES: dict[str, tuple[Callable[[Path], None], str]] = {
    "encrypted": (lambda path: central(path, 8, b"\x01\x00"), "encrypted"),
    "an unknown compression": (lambda path: central(path, 10, b"\x63\x00"), "compression"),
    "a size that is larger": (lambda path: central(path, 24, (2**31).to_bytes(4, "little")), "2,147,483,"),
    "a place outside": (lambda path: central(path, 42, (2**31).to_bytes(4, "little")), "cannot be read as"),
    "cut short": (lambda path: os.truncate(path, path.stat().st_size - 30), "cannot be read as"),
}


@pytest.mark.parametrize("change", DIRECTORIES)
def test_directories_that_cannot_be(tmp_path: Path, change: str) -> None:
    path = archive(tmp_path / "bad.npz", ("a.npy", npy()), compression=zipfile.ZIP_DEFLATED)
    DIRECTORIES[change][0](path)
    with pytest.raises(CheckpointError, match=r"bad\.npz cannot be read as an \.npz file: ") as caught:
        NpzFile.open(path)
    assert DIRECTORIES[change][1] in str(caught.value)


def test_a_size_that_its_bytes_cannot_have(tmp_path: Path) -> None:
    path = archive(tmp_path / "bad.npz", ("a.npy", npy((2**28,))), compression=zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(path) as file:
        size = file.getinfo("a.npy").file_size - 24 + 2**30
    central(path, 24, size.to_bytes(4, "little"))
    with pytest.raises(CheckpointError, match=r'array "a" should have 1,073,741,\d+ bytes, but its \d+ in the archive'):
        NpzFile.open(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_values_that_are_not_what_was_written(tmp_path: Path, compression: int) -> None:
    values = np.random.default_rng(0).normal(size=9_000).astype(np.float32)
    path = archive(tmp_path / "bad.npz", ("a.npy", npy((9_000,), data=values.tobytes())), compression=compression)
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") - 9] ^= 16
    path.write_bytes(content)
    with pytest.raises(DamagedCheckpointError, match=r'array "a" of .*bad\.npz cannot be read: '):
        NpzFile.open(path).read("a")


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "zero.npz").symlink_to("/dev/zero")
    (tmp_path / "folder.npz").mkdir()
    for name, kind in (("pipe", "a named pipe"), ("zero", "a device"), ("folder", "a folder")):
        with pytest.raises(CheckpointError, match=rf"{name}\.npz cannot be read .*: it is {kind}, not a regular file"):
            NpzFile.open(tmp_path / f"{name}.npz")


def test_arrays_of_other_machines_and_orders(tmp_path: Path) -> None:
    square = np.arange(6).reshape(2, 3)
    np.savez(tmp_path / "a.npz", big=square.astype(">i4"), columns=np.asfortranarray(square), zeros=np.zeros((0, 3)))
    file = NpzFile.open(tmp_path / "a.npz")
    np.testing.assert_array_equal(file.read("big"), square.astype(np.int32), strict=True)
    np.testing.assert_array_equal(file.read("columns"), square, strict=True)
    assert file.read("zeros").shape == [0, 3]
