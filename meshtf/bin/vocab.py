"""meshtf-vocab: trains a SentencePiece vocabulary on text."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags

from meshtf.bin._command_line import CommandLine
from meshtf.bin._exit_status import ExitStatus
from meshtf.bin._run_program import run_program
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.sources.document import Source
from meshtf.train.data.sources.python_library import python_library
from meshtf.train.data.sources.text_files import TextFiles
from meshtf.train.data.vocabularies.train_sentencepiece import MODEL_TYPES, train_sentencepiece

PROGRAM = "meshtf-vocab"


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Trains; returns the exit status."""
    return run_program(command_line(), prepare, arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="trains a SentencePiece vocabulary, whose ids 0 and 1 are padding and the end of a sequence.\n"
        "A gin configuration then says TextTask.vocabulary = @SentencePieceVocabulary() and\n"
        'SentencePieceVocabulary.path = "books.model".',
        usage=f"{PROGRAM} (--files=PATTERN ... | --python_library) --output=FILE [--size=N] [--model_type=TYPE]",
        examples=[
            f"{PROGRAM} --files='books/**/*.txt' --size=8192 --output=books.model",
            f"{PROGRAM} --python_library --output=python.model --model_type=bpe",
        ],
        required=["output"],
    )
    flags.DEFINE_multi_string(
        "files",
        [],
        "Text files to train on, by glob pattern, as 'books/**/*.txt'. May be given several times.",
        flag_values=line.flags,
    )
    flags.DEFINE_bool(
        "python_library",
        False,
        "Train on the Python library's own source and documentation, instead of on files.",
        flag_values=line.flags,
    )
    flags.DEFINE_string("output", None, "The file to write, as vocabulary.model.", flag_values=line.flags)
    flags.DEFINE_integer(
        "size",
        8192,
        "The number of ids, 8192 by default; padding, end, unknown and 256 bytes are among them.",
        flag_values=line.flags,
    )
    flags.DEFINE_enum(
        "model_type",
        "unigram",
        MODEL_TYPES,
        "How pieces are found: unigram (the default) or bpe.",
        flag_values=line.flags,
    )
    flags.DEFINE_float(
        "character_coverage",
        0.9995,
        "The share of the text's characters that get a piece, 0.9995 by default; the others become bytes.",
        flag_values=line.flags,
    )
    return line


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Finds the text."""
    if bool(values.files) == values.python_library:
        raise ConfigurationError(f"either --files or --python_library says what to train on\nSee {PROGRAM} --help.")
    source = python_library() if values.python_library else TextFiles(tuple(values.files))
    return functools.partial(train, source, Path(values.output).expanduser(), values)


def train(source: Source, output: Path, values: flags.FlagValues) -> int:
    num_bytes = train_sentencepiece(source, output, values.size, values.model_type, values.character_coverage)
    print(f"trained on:    {source} ({num_bytes:,} bytes)")
    print(f"written to:    {output} ({values.size:,} ids, {values.model_type})")
    return ExitStatus.DONE


if __name__ == "__main__":
    run()
