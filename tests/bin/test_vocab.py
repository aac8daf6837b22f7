"""The program that trains vocabularies."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshtf.bin import vocab
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import SentencePieceVocabulary, TextFiles, train_sentencepiece
from meshtf.train.data.sources.document import Document
from meshtf_programs.exit_status import ExitStatus
from tests.fresh_process import run_fresh

TEXT = Path(subprocess.__file__)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What it says of arguments that it refuses."""
    assert vocab.main([vocab.PROGRAM, *arguments]) == ExitStatus.BAD_CONFIGURATION
    return capsys.readouterr().err


def test_as_a_user_runs_it(tmp_path: Path) -> None:
    arguments = (f"--files={TEXT}", "--size=500", "--output=new/small.model")
    done = run_fresh(["-m", "meshtf.bin.vocab", *arguments], tmp_path)
    assert done.status == 0, done.stderr
    assert f"trained on:    files {TEXT} (" in done.stdout
    assert "written to:    new/small.model (500 ids, unigram)" in done.stdout
    vocabulary = SentencePieceVocabulary(str(tmp_path / "new" / "small.model"))
    text = TEXT.read_text()
    ids = vocabulary.encode(text)
    assert vocabulary.size == 500
    assert vocabulary.decode(ids) == text
    assert vocabulary.num_bytes(ids) == len(text.encode())
    assert len(ids) < len(text) / 2


def test_bytes_of_text_are_counted_and_not_characters(tmp_path: Path) -> None:
    text = TEXT.read_text().replace("e", "日")
    (tmp_path / "text.txt").write_text(text)
    num_bytes = train_sentencepiece(TextFiles(str(tmp_path / "text.txt")), tmp_path / "a.model", 400)
    assert num_bytes == len(text.encode()) - text.count("\n")


def test_text_that_is_not_utf_8_is_left_out_and_no_character_of_a_long_line(tmp_path: Path) -> None:
    """A line is cut where a character ends, even if each takes three of the 4,096 bytes that fit."""
    text = TEXT.read_text() + "\n" + 5000 * "\u65e5"
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.txt").write_bytes(b"caf\xe9 " * 1000)
    num_bytes = train_sentencepiece(TextFiles(str(tmp_path / "*.txt")), tmp_path / "a.model", 400)
    assert num_bytes == len(text.encode()) - text.count("\n")


def test_a_folder_that_is_read_only_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    error = refused(capsys, f"--files={TEXT}", f"--output={tmp_path}/small.model", "--size=500")
    assert f"small.model cannot be written: nothing can be written in {tmp_path}" in error


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_source_without_text_is_named(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none.txt").write_text(text)
    told = refused(capsys, f"--files={tmp_path / 'none.txt'}", "--size=300", f"--output={tmp_path / 'a.model'}")
    assert f"there is no text in files {tmp_path / 'none.txt'}" in told


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_the_same_text_gives_the_same_vocabulary(tmp_path: Path, model_type: str) -> None:
    for name in ("1.model", "2.model"):
        train_sentencepiece(TextFiles(str(TEXT)), tmp_path / name, 400, model_type)
    assert (tmp_path / "1.model").read_bytes() == (tmp_path / "2.model").read_bytes()


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert vocab.main([vocab.PROGRAM, "--help"]) == ExitStatus.DONE
    text = capsys.readouterr().out
    assert all(f"--{name}" in text for name in ("files", "python_library", "output", "size", "model_type"))
    assert "8192 by default" in text
    assert "Exit status:" in text


def test_flags_that_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean: size" in refused(capsys, "--siz=300")
    assert "give either --files or --python_library" in refused(capsys, "--output=a.model")
    assert "give either --files or --python_library" in refused(capsys, "--output=a", "--files=b", "--python_library")
    assert "--output is needed" in refused(capsys, "--python_library")
    assert "unexpected argument 'b.txt'" in refused(capsys, "b.txt")
    assert "unigram|bpe" in refused(capsys, "--python_library", "--output=a.model", "--model_type=words")


def test_the_text_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(TEXT.read_bytes())
    for pattern in ("text.txt", "*.txt"):
        told = refused(capsys, f"--files={tmp_path / pattern}", "--size=300", f"--output={text}")
        assert "text.txt, which --files reads; give another --output" in told
    assert text.read_bytes() == TEXT.read_bytes()


def test_what_cannot_be_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "small.model"
    for arguments, message in (
        ([f"--files={tmp_path}/*.txt", f"--output={output}"], "no file matches"),
        ([f"--files={TEXT}", f"--output={output}", "--size=100000"], "Vocabulary size too high (100000)"),
        ([f"--files={TEXT}", f"--output={output}", "--size=100"], "259 ids at least, and the size is 100"),
        ([f"--files={TEXT}", f"--output={output}", "--character_coverage=2"], "at most 1, and is 2.0"),
        ([f"--files={TEXT}", f"--output={tmp_path}"], "is a folder; name a file"),
        ([f"--files={TEXT}", f"--output={TEXT}/small.model"], "small.model cannot be written"),
    ):
        assert message in refused(capsys, *arguments)
    assert not output.exists()


def test_an_unknown_model_type_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'unigrams'; did you mean \"unigram\"\?"):
        train_sentencepiece(TextFiles(str(TEXT)), tmp_path / "a.model", 400, "unigrams")


def test_what_is_wrong_with_the_text_is_told_and_not_that_there_was_none(tmp_path: Path) -> None:
    class Broken(TextFiles):
        def documents(self) -> Iterator[Document]:
            raise RuntimeError("the text is away")

    with pytest.raises(RuntimeError, match="the text is away"):
        train_sentencepiece(Broken(str(TEXT)), tmp_path / "a.model", 300)
