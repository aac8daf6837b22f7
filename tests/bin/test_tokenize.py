"""The program that makes tokens, with processes of its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import gin
import pytest

from meshtf.bin import tokenize
from meshtf.errors import ExecutionError
from meshtf.train.data import ByteVocabulary, JsonLines, LanguageModel
from meshtf.train.data._tokenized_text import TextReader
from meshtf.train.data.sources import shards
from meshtf.train.data.sources.shards import shards_of
from meshtf.train.data.token_folders.workers import tokens_of
from meshtf_programs.exit_status import ExitStatus

CONFIGURATION = """
import meshtf.train.data

Training.task = @TextTask()
TextTask.source = @JsonLines()
JsonLines.patterns = "{patterns}"
TextTask.vocabulary = @ByteVocabulary()
TextTask.objective = @LanguageModel()
TextTask.length = 16
TextTask.held_out = 0.5
"""


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    for name in "ab":
        texts = (f'{{"text": "document {name} {number}"}}\n' for number in range(200))
        (tmp_path / f"{name}.jsonl").write_text("".join(texts))
    path = tmp_path / "text.gin"
    path.write_text(CONFIGURATION.format(patterns=tmp_path / "*.jsonl"))
    return path


def run(configuration: Path, *arguments: str) -> int:
    gin.clear_config()
    return tokenize.main([tokenize.PROGRAM, f"--gin_file={configuration}", *arguments])


def test_processes_make_what_one_makes_and_their_failures_are_told(
    configuration: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards.shards_of, "__defaults__", (500,))
    for processes in (1, 2):
        assert run(configuration, f"--output={tmp_path / str(processes)}", f"--processes={processes}") == 0
    for path in (tmp_path / "1").iterdir():
        assert path.read_bytes() == (tmp_path / "2" / path.name).read_bytes()
    said = capsys.readouterr().out
    assert "held_out:      1" in said
    assert "made in:" in said
    assert run(configuration, f"--output={tmp_path / '2'}", "--verify") == 0
    assert "verified:      every byte is as it was written" in capsys.readouterr().out
    with (tmp_path / "b.jsonl").open("a") as file:
        file.write("no JSON\n")
    assert run(configuration, f"--output={tmp_path / '3'}", "--processes=2") == ExitStatus.BAD_CONFIGURATION
    assert "b.jsonl, line " in capsys.readouterr().err
    assert not (tmp_path / "3").exists()


def test_a_process_that_dies_is_named(configuration: Path) -> None:
    reader = TextReader(ByteVocabulary(), LanguageModel(), skip_undecodable=False)
    shards = [(shard, 0.5) for shard in shards_of(JsonLines(str(configuration.parent / "*.jsonl")), 500)]
    answers = tokens_of(KillsItself(reader), shards, 2)
    with pytest.raises(
        ExecutionError, match=r"has died \(exit code -9\); was there enough memory for 2\?\n.*--processes=N"
    ):
        list(answers)


class KillsItself:
    """A reader whose process is killed, as by a system without memory."""

    def __init__(self, reader: TextReader) -> None:
        self._reader = reader

    def read_shard(self, *_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_configuration_without_a_folder(configuration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(configuration) == ExitStatus.BAD_CONFIGURATION
    assert "--output=FOLDER, or TextTask.tokens" in capsys.readouterr().err
    assert run(configuration, "--output=s3://me:word@bucket/tokens") == ExitStatus.BAD_CONFIGURATION
    said = capsys.readouterr().err
    assert "must be a folder of this machine, or mounted, and is s3://bucket/tokens" in said
    configuration.write_text("import meshtf.train.data\n")
    assert run(configuration, "--output=x") == ExitStatus.BAD_CONFIGURATION
    assert "binds no Training.task of text" in capsys.readouterr().err
