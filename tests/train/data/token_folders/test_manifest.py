"""Folders that are not what they must be: each says what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ByteVocabulary, TextTask

MakeTask = Callable[..., TextTask]


@pytest.fixture
def folder(task: MakeTask, tmp_path: Path) -> Path:
    str(task())
    return tmp_path / "tokens"


def complaint(task: TextTask) -> str:
    with pytest.raises(ConfigurationError) as caught:
        next(task.training_batches(2, 0))
    return str(caught.value)


def test_tokens_of_something_else(task: MakeTask, folder: Path, lines: Path) -> None:
    said = complaint(task(held_out=0.2, skip_undecodable=True))
    assert "held_out: 0.3 then, 0.2 now" in said
    assert "skip_undecodable: False then, True now" in said
    assert "Give TextTask.tokens another folder, or remove this one" in said
    fewer = task(length=8)
    other = TextTask(fewer.source, ByteVocabulary(extra_ids=7), fewer.objective, 8, held_out=0.3, tokens=fewer.tokens)
    assert "vocabulary: 'bytes from id 2, 100 sentinels' then, 'bytes from id 2, 7 sentinels' now" in complaint(other)
    lines.write_bytes(lines.read_bytes() + b'{"text": "more"}\n')
    assert "files of the source: {'files': 1, 'bytes': " in complaint(task())


def test_files_that_are_missing_or_cut_short(task: MakeTask, folder: Path) -> None:
    (folder / "train_0.tokens").write_bytes((folder / "train_0.tokens").read_bytes()[:-100])
    (folder / "held_out_0.ends").unlink()
    said = complaint(task())
    assert "held_out_0.ends is missing (No such file or directory)" in said
    assert "train_0.tokens has " in said
    assert "bytes, and must have" in said


def test_documents_that_do_not_follow_one_another(task: MakeTask, folder: Path) -> None:
    ends = np.fromfile(folder / "train_0.ends", np.int64)
    ends[[3, 4]] = ends[[4, 3]]
    ends.tofile(folder / "train_0.ends")
    assert "train_0.ends does not divide" in complaint(task())


@pytest.mark.parametrize("change", ["{", '{"format": "other"}', "[]"])
def test_manifests_that_are_none(task: MakeTask, folder: Path, change: str) -> None:
    (folder / "manifest.json").write_text(change)
    assert "manifest.json is " in complaint(task())


@pytest.mark.parametrize(("key", "value"), [("dtype", "float64"), ("num_parts", 2), ("contents", {}), ("made_of", 3)])
def test_manifests_that_are_damaged(task: MakeTask, folder: Path, key: str, value: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {key: value}))
    assert "manifest.json is damaged: " in complaint(task())


def test_every_byte_is_verified(task: MakeTask, folder: Path) -> None:
    made = task().token_folder
    assert made is not None
    made.manifest().verify(folder)
    content = bytearray((folder / "train_0.tokens").read_bytes())
    content[10] ^= 1
    (folder / "train_0.tokens").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"train_0\.tokens does not have the bytes that were written"):
        made.manifest().verify(folder)
