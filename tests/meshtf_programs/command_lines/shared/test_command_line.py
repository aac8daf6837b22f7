"""What is told before TensorFlow is imported: help, and what is wrong with the flags."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from meshtf.bin import (
    benchmark,
    checkpoint,
    compare,
    decode,
    eval,  # noqa: A004  # the program's name
    export,
    import_gin,
    plan,
    probe,
    tokenize,
    train,
    vocab,
)
from meshtf.bin import compile as compile_program
from meshtf.checkpoint.conversion.exporting import FLOATING
from meshtf.train.data.vocabularies.train_sentencepiece import MODEL_TYPES
from meshtf.train.decoding.options import OPTIONS_OF
from meshtf.train.runs.saved_weights import Weights
from meshtf_programs.command_lines.checkpoint import COMMANDS, DTYPES
from meshtf_programs.command_lines.shared.flag_groups import METHODS, WEIGHTS
from meshtf_programs.command_lines.vocab import MODEL_TYPES as MODEL_TYPES_OF_FLAG

# Of all programs in one process, which says what it imported on the way.
ANSWERS = """
import contextlib
import importlib
import io
import sys

for name in sys.argv[1:]:
    answer = importlib.import_module(f"meshtf_programs.command_lines.{name}").answer
    for arguments, status, words in (["--help"], 0, "Exit status:"), (["--layoutt=x"], 2, "nknown command line flag"):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            found = answer([f"meshtf-{name}", *arguments])
        assert (found, words in said.getvalue()) == (status, True), (name, found, said.getvalue())
print(sorted({"tensorflow", "meshtf", "numpy", "rich"} & set(sys.modules)))
"""
PROGRAMS = (checkpoint, compare, compile_program, decode, eval, export, import_gin, plan, probe, tokenize, train, vocab)


def test_help_and_wrong_flags_are_told_without_heavy_imports() -> None:
    names = [program.__name__.rpartition(".")[2] for program in PROGRAMS]
    done = subprocess.run([sys.executable, "-c", ANSWERS, *names], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_help_offers_a_search_only_where_there_is_one() -> None:
    for program in (compile_program, decode, eval, plan, train):
        line = program.command_line()
        text = " ".join(line.help_text().split())
        assert ("auto:512" in text, "auto: the layout" in text) == ("search_seconds" in line.flags,) * 2, line.program
        assert ("as many as there are cores for" in text) == ("backend" in line.flags), line.program


def test_help_has_defaults_and_lists_only_what_flags_take() -> None:
    for program in (benchmark, compile_program, decode, eval, export, import_gin, plan, probe, tokenize, train, vocab):
        line = program.command_line()
        text = " ".join(line.help_text().split())
        assert ("for --recipe" in text) == ("recipe" in line.flags), line.program
        assert ("that meshtf brings along" in text) == ("gin_file" in line.flags), line.program
    assert "each with a seed of its own. By default 5." in " ".join(benchmark.command_line().help_text().split())
    assert "It is even. By default 8." in " ".join(probe.command_line().help_text().split())
    assert "for huggingface alone. By default huggingface." in " ".join(checkpoint.help_text().split())


def test_choices_of_flags_are_those_of_the_library() -> None:
    assert list(METHODS) == list(OPTIONS_OF)
    assert list(WEIGHTS) == [weights.value for weights in Weights]
    assert list(DTYPES) == list(FLOATING)
    assert MODEL_TYPES_OF_FLAG == MODEL_TYPES
    assert list(COMMANDS) == list(checkpoint.WORK)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.PROGRAM)
def test_a_program_that_is_imported_says_the_same(program: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main([program.PROGRAM, "--help"]) == 0
    text = program.help_text() if hasattr(program, "help_text") else program.command_line().help_text()
    assert capsys.readouterr().out == text


def test_help_that_nobody_reads_to_its_end_is_no_traceback() -> None:
    """Nor where the disk is full."""
    read, write = os.pipe()
    os.close(read)
    code = "from meshtf_programs.start import train; train()"
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-c", code, "--help"], stdout=closed, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (4, "the output cannot be written: No space left on device\n")
