"""meshtf-vocab: trains a SentencePiece vocabulary on text."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from absl import app, flags

from meshtf.errors import MeshtfError
from meshtf.train.data.sources.document import Source
from meshtf.train.data.sources.python_library import python_library
from meshtf.train.data.sources.text_files import TextFiles
from meshtf.train.data.vocabularies.train_sentencepiece import MODEL_TYPES, train_sentencepiece

PROGRAM = "meshtf-vocab"
BAD_CONFIGURATION, FAILED, INTERRUPTED = 2, 1, 130

FILES = flags.DEFINE_multi_string(
    "files", [], "Text files to train on, by glob pattern, as 'books/**/*.txt'. May be given several times."
)
PYTHON_LIBRARY = flags.DEFINE_bool(
    "python_library", False, "Train on the Python library's own source and documentation, instead of on files."
)
OUTPUT = flags.DEFINE_string("output", None, "The file to write, as vocabulary.model.")
SIZE = flags.DEFINE_integer("size", 8192, "The number of ids; padding, end, unknown and 256 bytes are among them.")
MODEL_TYPE = flags.DEFINE_enum("model_type", "unigram", MODEL_TYPES, "How pieces are found: unigram or bpe.")
CHARACTER_COVERAGE = flags.DEFINE_float(
    "character_coverage", 0.9995, "The share of the text's characters that get a piece; the others become bytes."
)

HELP = """\
{program} trains a SentencePiece vocabulary, whose ids 0 and 1 are padding and the end of a sequence.

Usage:
  {program} --files=PATTERN [--files=PATTERN ...] --output=FILE [--size=N] [--model_type=TYPE]
  {program} --python_library --output=FILE [--size=N] [--model_type=TYPE]

Example, and what a gin configuration then says:
  {program} --files='books/**/*.txt' --size=8192 --output=books.model

  TextTask.vocabulary = @SentencePieceVocabulary()
  SentencePieceVocabulary.path = "books.model"

Flags:
{flags}
"""


def run() -> None:
    """The console script."""
    app.run(main, flags_parser=parse_flags)


def parse_flags(arguments: Sequence[str]) -> list[str]:
    """Sets the flags. Exits with the help where it is asked for, or with an error that names the nearest flag."""
    if {"-h", "--help", "-help", "--helpshort"} & set(arguments[1:]):
        print(help_text(), end="")
        sys.exit(0)
    try:
        rest = flags.FLAGS(arguments)
        if len(rest) > 1:
            raise flags.Error(f"unexpected argument {rest[1]!r}; files to train on are given with --files={rest[1]}")
        if bool(FILES.value) == PYTHON_LIBRARY.value:
            raise flags.Error("either --files or --python_library is needed, to say what to train on")
        if not OUTPUT.value:
            raise flags.Error("--output is needed, for example --output=vocabulary.model")
    except flags.Error as error:
        complain(f"{error}\nSee {PROGRAM} --help.")
        sys.exit(BAD_CONFIGURATION)
    return rest


def help_text() -> str:
    holders = (FILES, PYTHON_LIBRARY, OUTPUT, SIZE, MODEL_TYPE, CHARACTER_COVERAGE)
    described = "\n".join(
        f"  --{holder.name}\n      {flags.FLAGS[holder.name].help}{_default_of(holder)}" for holder in holders
    )
    return HELP.format(program=PROGRAM, flags=described)


def main(_: Sequence[str]) -> int:
    """Trains; returns the exit status. What the user can mend is a message, and never a traceback."""
    output = Path(OUTPUT.value or "").expanduser()
    try:
        source = source_of_text()
        num_bytes = train_sentencepiece(source, output, SIZE.value, MODEL_TYPE.value, CHARACTER_COVERAGE.value)
        print(f"trained on:    {source} ({num_bytes:,} bytes)")
        print(f"written to:    {output} ({SIZE.value:,} ids, {MODEL_TYPE.value})")
    except BrokenPipeError:  # what reads the output has read enough, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except MeshtfError as error:
        complain(str(error))
        return BAD_CONFIGURATION
    except KeyboardInterrupt:
        complain("interrupted; nothing is written")
        return INTERRUPTED
    return 0


def source_of_text() -> Source:
    return python_library() if PYTHON_LIBRARY.value else TextFiles(tuple(FILES.value))


def complain(message: str) -> None:
    print(f"{PROGRAM}: error: {message}", file=sys.stderr)


def _default_of(holder: flags.FlagHolder) -> str:
    return f" Default: {holder.default}." if holder.default else ""


if __name__ == "__main__":
    run()
