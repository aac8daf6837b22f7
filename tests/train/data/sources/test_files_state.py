"""What files are is known without reading them, and a change is seen whatever it leaves as it was."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from meshtf.train.data import HuggingFaceDataset, ParquetFiles, TextFiles, TfRecords
from meshtf.train.data.sources import files_state as states
from meshtf.train.data.sources.document import Source
from meshtf.train.data.sources.files_state import files_state, is_same


def test_the_state_of_files(tmp_path: Path, many_texts: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "a.txt").write_text("four")
    source = TextFiles(str(folder / "*"))
    made = files_state(source)
    assert made is not None
    assert (made["files"], made["bytes"]) == (1, 4)
    assert files_state(TextFiles(str(folder / "none"))) is None
    assert files_state(many_texts) is None

    # What is as it was is not read; a copy with times of its own is, and is the same.
    with monkeypatch.context() as patch:
        patch.setattr(states, "open_regular", None)
        assert is_same(made, files_state(source, made))
        (folder / "a.txt").write_text("other")
        assert not is_same(made, files_state(source, made))
    (folder / "a.txt").write_text("four")
    os.utime(folder / "a.txt", ns=(1, 1))
    assert is_same(made, files_state(source, made))
    shutil.copytree(folder, tmp_path / "elsewhere")
    assert is_same(made, files_state(TextFiles(str(tmp_path / "elsewhere" / "*")), made))

    (folder / "a.txt").write_text("five")
    os.utime(folder / "a.txt", ns=(2, 2))
    assert not is_same(made, files_state(source, made))
    (folder / "a.txt").write_text("four")
    (folder / "a.txt").rename(folder / "b.txt")
    assert not is_same(made, files_state(source, made))


def test_sources_of_files_say_so(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1234567")
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "a"}]}')
    for source in (
        TfRecords(str(tmp_path / "a")),
        ParquetFiles(str(tmp_path / "a")),
        HuggingFaceDataset(str(tmp_path)),
    ):
        state = files_state(source)
        assert state is not None
        assert state["bytes"] == 7
