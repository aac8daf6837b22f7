"""Tokens on disk are those in memory, however they were made."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import Pack, Pad, SpanCorruption, TextFiles, TextTask
from meshtf.train.data.sources import shards
from meshtf.train.data.sources.document import Document, Source
from meshtf.train.data.token_folders import token_writer

MakeTask = Callable[..., TextTask]


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards.shards_of, "__defaults__", (300,))


def first_batches(task: TextTask) -> list[dict[str, np.ndarray]]:
    batches = task.training_batches(batch_size=3, seed=5)
    found = [next(batches) for _ in range(3)] + list(task.evaluation_batches(4))
    return [{name: np.asarray(array) for name, array in batch.items()} for batch in found]


def assert_same(one: TextTask, other: TextTask) -> None:
    assert str(one) == str(other)
    for first, second in zip(first_batches(one), first_batches(other), strict=True):
        assert all((first[name] == second[name]).all() for name in {*first, *second})


@pytest.mark.parametrize(
    "options", [{}, {"arrangement": Pack()}, {"arrangement": Pad()}], ids=["one text", "pack", "pad"]
)
def test_batches_are_those_of_tokens_in_memory(task: MakeTask, options: dict[str, object]) -> None:
    assert_same(task(**options), task(tokens=None, **options))
    assert_same(task(**options), task(tokens=None, **options))  # which is there by now


def test_a_held_out_source_of_its_own(task: MakeTask, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("held\nout\n")
    other = TextFiles(str(tmp_path / "other.txt"), "line")
    assert_same(task(held_out=other), task(held_out=other, tokens=None))


def test_another_objective_of_one_text_reads_the_same_folder(task: MakeTask, tmp_path: Path) -> None:
    str(task())
    made = (tmp_path / "tokens" / "manifest.json").stat().st_mtime_ns
    t5 = TextTask(task().source, task().vocabulary, SpanCorruption(), 40, Pack(), 0.3, tokens=str(tmp_path / "tokens"))
    assert len(first_batches(t5)) > 3
    assert (tmp_path / "tokens" / "manifest.json").stat().st_mtime_ns == made


class BrokenError(Exception):
    """As if the process had died."""


def test_what_was_interrupted_goes_on_where_it_was(
    task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object) -> None:
        raise BrokenError

    whole = task(tokens=str(tmp_path / "whole"))
    assert whole.token_folder is not None
    whole.token_folder.make(1, print)
    monkeypatch.setattr(token_writer, "SECONDS_BETWEEN_JOURNALS", 0.0)
    folder = task().token_folder
    assert folder is not None
    append, appended, said = token_writer.TokenWriter.append, [], []

    def append_some(self: token_writer.TokenWriter, *arguments: object) -> None:
        if len(appended) == 4:
            for file in self._files.values():
                file.write(b"half a shard that no journal has")
            raise BrokenError
        appended.append(arguments)
        append(self, *arguments)

    monkeypatch.setattr(token_writer.TokenWriter, "append", append_some)
    with pytest.raises(BrokenError):
        folder.make(1, said.append)
    assert not folder.path.exists()
    monkeypatch.setattr(token_writer.TokenWriter, "append", append)
    folder.make(1, said.append)
    assert said[1].endswith(", from shard 5 on")
    names = {path.name for path in folder.path.iterdir()}
    assert names == {path.name for path in (tmp_path / "whole").iterdir()}
    assert all((folder.path / name).read_bytes() == (tmp_path / "whole" / name).read_bytes() for name in names)
    assert not token_writer.partial_folder(folder.path).exists()


def test_nothing_stays_of_text_that_cannot_be_read(task: MakeTask, lines: Path, tmp_path: Path) -> None:
    before = lines.read_bytes()
    lines.write_bytes(before + b'{"body": "x"}\n')
    with pytest.raises(ConfigurationError, match=r'has no key "text", only body'):
        str(task())
    assert {path.name for path in tmp_path.iterdir()} == {"texts.jsonl"}
    lines.write_bytes(before)
    with pytest.raises(ConfigurationError, match=r"with TextTask.held_out = 1e-09 no document of 80 is held out"):
        str(task(held_out=1e-9))
    assert {path.name for path in tmp_path.iterdir()} == {"texts.jsonl"}


def test_what_is_being_made_is_not_made_twice(task: MakeTask, tmp_path: Path) -> None:
    class MakesItToo:
        def documents(self) -> list[Document]:
            with pytest.raises(ConfigurationError, match=r"another process is making the tokens .*tokens; wait"):
                str(made)
            return [Document("a", b"text"), Document("b", b"more text")]

        def __repr__(self) -> str:
            return "MakesItToo()"

    source: Source = MakesItToo()
    made = TextTask(source, task().vocabulary, task().objective, 8, held_out=source, tokens=str(tmp_path / "tokens"))
    assert "2 documents of 13 bytes" in str(made)


def test_a_folder_that_is_something_else_is_left_alone(task: MakeTask, tmp_path: Path) -> None:
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens" / "mine").touch()
    with pytest.raises(ConfigurationError, match=r"tokens already exists, and is not a folder of tokens; remove it"):
        str(task())
    with pytest.raises(ConfigurationError, match=r"TextTask\.tokens must be the path of a folder, and is 3"):
        task(tokens=3)


def test_files_that_are_gone_since_do_not_matter(task: MakeTask, lines: Path) -> None:
    str(task())
    lines.unlink()
    assert len(first_batches(task())) > 3


def test_settings_are_in_the_manifest(task: MakeTask, lines: Path, tmp_path: Path) -> None:
    str(task())
    made_of = json.loads((tmp_path / "tokens" / "manifest.json").read_bytes())["made_of"]
    assert made_of["held_out"] == 0.3
    files = made_of["files of the source"]
    assert (files["files"], files["bytes"]) == (1, lines.stat().st_size)


def test_text_that_has_changed_is_noticed(task: MakeTask, lines: Path) -> None:
    str(task())
    content = lines.read_bytes()
    lines.write_bytes(content)  # the same again, at another time
    assert len(first_batches(task())) > 3
    lines.write_bytes(content.replace(b"e", b"a", 1))
    os.utime(lines, ns=(1, 1))
    with pytest.raises(
        ConfigurationError, match=r"the tokens in .* were not made for this task:\n  files of the source"
    ):
        str(task())
