"""Manifests that anyone can write, with the right checksum: each ends in a message, and nothing of it is believed."""

from __future__ import annotations

import copy
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_training import Trained

from meshtf.bin.checkpoint import main
from meshtf.checkpoint import CheckpointFolder, SavedCheckpoint, manifest
from meshtf.errors import DamagedCheckpointError

Content = dict[str, Any]
Change = Callable[[Content], Any]

W = "embedding"
"""A tensor [5, 4], in the boxes [5, 2] of two cores."""

DATA = "variables.data-00000-of-00001"


@pytest.fixture
def own(trained: Trained, tmp_path: Path) -> SavedCheckpoint:
    """A copy of a whole checkpoint, to be spoilt."""
    return SavedCheckpoint.open(shutil.copytree(trained.saved.folder, tmp_path / "step_00000002"))


def spoil(saved: SavedCheckpoint, change: Change) -> None:
    content = copy.deepcopy(manifest._intact_content(saved.folder / manifest.MANIFEST))
    changed = change(content)
    (saved.folder / manifest.MANIFEST).write_text(manifest._with_checksum(content if changed is None else changed))


def put(*path: str | int, value: Any) -> Change:
    """Sets what stands under these keys."""

    def change(content: Content) -> None:
        at: Any = content
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change


def drop(*path: str) -> Change:
    def change(content: Content) -> None:
        at: Any = content
        for key in path[:-1]:
            at = at[key]
        del at[path[-1]]

    return change


def rename_file(name: str) -> Change:
    def change(content: Content) -> None:
        content["files"][name] = content["files"].pop("variables.index")

    return change


def rename_tensor(name: str) -> Change:
    def change(content: Content) -> None:
        content["tensors"][name] = content["tensors"].pop(W)

    return change


def boxes(*found: Any) -> Change:
    return put("tensors", W, "boxes", value=list(found))


def tensor(shape: list[Any], dtype: str = "float32") -> Change:
    whole = [[[0] * len(shape), shape]]
    return put("tensors", W, value={"boxes": whole, "dtype": dtype, "shape": shape})


NESTED: Any = []
for _ in range(200):
    NESTED = [NESTED]

FAULTS: dict[str, tuple[Change, str]] = {
    "step is text": (put("step", value="x"), 'step is "x", and must be a whole number, 0 or more'),
    "step is negative": (put("step", value=-1), "step is -1, and must be"),
    "step is huge": (put("step", value=2**63), "step is 9223372036854775808, and must be"),
    "step is true": (put("step", value=True), "step is true, and must be"),
    "step is a fraction": (put("step", value=1.5), "step is 1.5, and must be"),
    "step is nothing": (put("step", value=None), "step is null, and must be"),
    "no step": (drop("step"), "it lacks step"),
    "no files": (drop("files"), "it lacks files"),
    "no tensors": (drop("tensors"), "it lacks tensors"),
    "no state": (drop("state"), "it lacks state"),
    "more than there is": (put("more", value=1), 'it has "more", which is not a known key'),
    "state is a list": (put("state", value=[1]), "state is [1], and must be an object"),
    "files is a list": (put("files", value=[]), "files is [], and must be an object"),
    "tensors is text": (put("tensors", value="w"), 'tensors is "w", and must be an object'),
    "an absolute file": (rename_file("/etc/passwd"), 'files names "/etc/passwd"; a checkpoint\'s files lie in its own'),
    "a file above": (rename_file("../variables.index"), 'files names "../variables.index"; a checkpoint'),
    "a file below": (rename_file("a/variables.index"), 'files names "a/variables.index"; a checkpoint'),
    "a device": (rename_file("/dev/zero"), 'files names "/dev/zero"; a checkpoint'),
    "a file of nothing": (rename_file(""), 'files names ""; a checkpoint'),
    "a file with NUL": (rename_file("variables.index\0"), 'files names "variables.index\\u0000"; a checkpoint'),
    "a file of another name": (rename_file("evil.so"), 'files names "evil.so"; a checkpoint'),
    "no index": (drop("files", "variables.index"), 'files lacks "variables.index"'),
    "a file is a number": (put("files", DATA, value=7), f'files["{DATA}"] is 7, and must be an object'),
    "a file without size": (drop("files", DATA, "num_bytes"), f'files["{DATA}"] lacks num_bytes'),
    "a negative size": (put("files", DATA, "num_bytes", value=-1), "num_bytes is -1, and must be"),
    "a size as text": (put("files", DATA, "num_bytes", value="9"), 'num_bytes is "9", and must be'),
    "no checksum": (put("files", "variables.index", "sha256", value=None), "sha256 is null, and must be 64 hexa"),
    "half a checksum": (put("files", "checkpoint", "sha256", value="ab"), 'sha256 is "ab", and must be 64 hexa'),
    "a checksum of data": (put("files", DATA, "sha256", value="a" * 64), "and must be null, for data"),
    "a tensor of no name": (rename_tensor(""), 'tensors[""] has a name that no variable can have'),
    "a tensor with NUL": (rename_tensor("a\0b"), 'tensors["a\\u0000b"] has a name that no variable can have'),
    "half a character": (rename_tensor("\ud800"), 'tensors["\\ud800"] has a name that no variable can have'),
    "a tensor is a list": (put("tensors", W, value=[]), f'tensors["{W}"] is [], and must be an object'),
    "a tensor without shape": (drop("tensors", W, "shape"), f'tensors["{W}"] lacks shape'),
    "a tensor without type": (drop("tensors", W, "dtype"), f'tensors["{W}"] lacks dtype'),
    "a tensor without boxes": (drop("tensors", W, "boxes"), f'tensors["{W}"] lacks boxes'),
    "a negative shape": (tensor([-1, 4]), f'tensors["{W}"].shape is [-1, 4], and must be a list'),
    "a shape of fractions": (tensor([2.5, 4]), f'tensors["{W}"].shape is [2.5, 4], and must be'),
    "a shape as text": (put("tensors", W, "shape", value="5 4"), f'tensors["{W}"].shape is "5 4", and must be'),
    "too many dimensions": (tensor([1] * 255), f'tensors["{W}"].shape is [1, 1,'),
    "a nested shape": (put("tensors", W, "shape", value=NESTED), f'tensors["{W}"].shape is [[[[['),
    "a shape beyond the data": (tensor([2**31, 2**31]), f'"{W}" with shape [2147483648, 2147483648] is the largest'),
    "a shape beyond 64 bits": (tensor([2**62, 2**62]), "bytes, and the files of data have "),
    "a type of no numbers": (
        tensor([5, 4], "string"),
        f'tensors["{W}"].dtype is "string", and no variable can have this type',
    ),
    "a type of resources": (tensor([5, 4], "resource"), '.dtype is "resource", and no variable can have this type'),
    "a type of references": (
        tensor([5, 4], "float32_ref"),
        '.dtype is "float32_ref", and no variable can have this type',
    ),
    "an unknown type": (tensor([5, 4], "float31"), '.dtype is "float31", and no variable can have this type'),
    "a type as number": (put("tensors", W, "dtype", value=1), ".dtype is 1, and no variable can have this type"),
    "no box": (boxes(), f'the 0 boxes of tensors["{W}"] do not make up its shape [5, 4]'),
    "a box is left out": (boxes([[0, 0], [5, 2]]), f'the 1 boxes of tensors["{W}"] do not make up its shape [5, 4]'),
    "a box twice": (boxes([[0, 0], [5, 2]], [[0, 0], [5, 2]]), "the 2 boxes of"),
    "boxes that overlap": (boxes([[0, 0], [5, 3]], [[0, 2], [5, 2]], [[0, 0], [0, 0]]), "the 3 boxes of"),
    "boxes of the right size that overlap": (boxes([[0, 0], [2, 4]], [[1, 0], [3, 4]]), "the 2 boxes of"),
    "a box beyond the shape": (boxes([[0, 0], [5, 2]], [[0, 3], [5, 2]]), "the 2 boxes of"),
    "a negative start": (boxes([[-1, 0], [5, 4]]), ".boxes[0] is [-1, 0], and must be a list"),
    "a box of three parts": (boxes([[0, 0], [5, 4], [1, 1]]), "and must be [[start, ..], [size, ..]]"),
    "a box as a number": (boxes(3), ".boxes[0] is 3, and must be [[start, ..], [size, ..]]"),
    "a box of another rank": (boxes([[0], [20]]), "the 1 boxes of"),
    "boxes as an object": (put("tensors", W, "boxes", value={}), ".boxes is {}, and must be a list"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_is_named(own: SavedCheckpoint, fault: str) -> None:
    change, words = FAULTS[fault]
    spoil(own, change)
    with pytest.raises(DamagedCheckpointError) as caught:
        SavedCheckpoint.open(own.folder)
    assert str(caught.value).startswith(f"checkpoint {own.folder} is damaged: manifest.json is wrong: ")
    assert words in str(caught.value)
    assert str(caught.value).endswith("use another checkpoint, or copy this one again from its source")
    assert CheckpointFolder(own.folder.parent).steps() == [2]


TEXTS = {
    "empty": b"",
    "no JSON": b"{",
    "not UTF-8": b'{"content":{"format":1},"sha256":"\xff"}\n',
    "deep": b"[" * 100_000,
    "deep inside": b'{"content":' + b"[" * 100_000,
    "a list": b"[]",
    "no content": b"{}",
    "content is a list": manifest._with_checksum([1]).encode(),  # type: ignore[arg-type]
    "NaN": manifest._with_checksum({"format": 1, "step": 1}).replace('"step":1', '"step":NaN').encode(),
    "a name twice": b'{"content":{"step":1,"step":2},"sha256":"x"}\n',
    "a number of a million digits": b'{"content":{"step":' + b"9" * 1_000_000 + b"}}",
}


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_no_manifest_is_damaged(own: SavedCheckpoint, text: str) -> None:
    (own.folder / manifest.MANIFEST).write_bytes(TEXTS[text])
    with pytest.raises(DamagedCheckpointError, match=r"manifest\.json does not have the content that was written"):
        SavedCheckpoint.open(own.folder)


def test_a_manifest_of_terabytes_is_not_read(own: SavedCheckpoint) -> None:
    os.truncate(own.folder / manifest.MANIFEST, 2**40)
    with pytest.raises(
        DamagedCheckpointError, match=r"manifest\.json cannot be read: it has 1,099,511,627,776 bytes, and"
    ):
        SavedCheckpoint.open(own.folder)


@pytest.mark.parametrize("name", ["manifest.json", "variables.index", DATA, "variables.data-00001-of-00002"])
@pytest.mark.parametrize("kind", ["a symbolic link", "a named pipe", "a folder", "a link to /dev/zero"])
def test_only_regular_files_are_opened(
    own: SavedCheckpoint, tmp_path: Path, name: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = own.folder / name
    outside = path.rename(tmp_path / "outside") if path.exists() else tmp_path / "nowhere"
    if kind == "a symbolic link":
        path.symlink_to(outside)
    elif kind == "a link to /dev/zero":
        path.symlink_to("/dev/zero")
    elif kind == "a named pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    for command in ("verify", "list", "show"):
        assert main(["meshtf-checkpoint", command, str(own.folder)]) == 1
        printed = capsys.readouterr()
        assert f"is damaged: {name} " in printed.out + printed.err
        assert (
            f"is {kind.replace('a link to /dev/zero', 'a symbolic link')}, not a regular file"
            in printed.out + printed.err
        )


def test_a_checkpoint_that_nobody_changed_is_whole(own: SavedCheckpoint) -> None:
    spoil(own, lambda content: None)
    SavedCheckpoint.open(own.folder).verify()


def test_names_are_shown_without_what_a_terminal_obeys(
    own: SavedCheckpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(own, rename_tensor("\x1b[2Jw"))
    assert main(["meshtf-checkpoint", "show", str(own.folder)]) == 0
    printed = capsys.readouterr().out
    assert "\\x1b[2Jw" in printed
    assert "\x1b" not in printed
