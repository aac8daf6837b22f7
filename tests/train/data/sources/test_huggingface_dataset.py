"""Folders as `datasets` 5.2 writes them, but for what nobody reads here."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import HuggingFaceDataset


def save(folder: Path, *shards: list[str]) -> None:
    folder.mkdir(parents=True)
    names = [f"data-{i:05}-of-{len(shards):05}.arrow" for i in range(len(shards))]
    for name, texts in zip(names, shards, strict=True):
        table = pyarrow.table({"text": texts, "label": range(len(texts))})
        with pyarrow.OSFile(str(folder / name), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))


def contents(path: Path, **options: str) -> list[str]:
    return [document.content.decode() for document in HuggingFaceDataset(str(path), **options).documents()]


def test_texts_of_all_files_in_order(tmp_path: Path) -> None:
    save(tmp_path / "all", ["one", ""], ["two", "three"])
    assert contents(tmp_path / "all") == ["one", "two", "three"]


def test_splits(tmp_path: Path) -> None:
    save(tmp_path / "all" / "train", ["one"])
    (tmp_path / "all" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    assert contents(tmp_path / "all", split="train") == ["one"]
    with pytest.raises(
        ConfigurationError, match=r"has the splits train, and .*split is 'trian'; did you mean \"train\"\?"
    ):
        contents(tmp_path / "all", split="trian")
    with pytest.raises(ConfigurationError, match=r"has no splits; leave out HuggingFaceDataset\.split = 'train'"):
        contents(tmp_path / "all" / "train", split="train")


def test_what_is_missing_or_damaged(tmp_path: Path) -> None:
    save(tmp_path / "all", ["one"], ["two"])
    with pytest.raises(ConfigurationError, match=r'has no column "body", only label, text'):
        contents(tmp_path / "all", column="body")
    second = tmp_path / "all" / "data-00001-of-00002.arrow"
    second.write_bytes(second.read_bytes()[:100])
    with pytest.raises(ConfigurationError, match=r"data-00001-of-00002\.arrow, a file of the data set, cannot be read"):
        contents(tmp_path / "all")
    second.unlink()
    with pytest.raises(ConfigurationError, match=r"data-00001-of-00002\.arrow, a file of the data set, cannot be read"):
        contents(tmp_path / "all")
    with pytest.raises(
        ConfigurationError, match=r"is no data set that Dataset\.save_to_disk wrote: it has no state\.json"
    ):
        contents(tmp_path)
    (tmp_path / "all" / "state.json").write_text('{"_data_files": [{"filename": "../x"}]}')
    with pytest.raises(ConfigurationError, match=r"lists files outside of its folder"):
        contents(tmp_path / "all")
