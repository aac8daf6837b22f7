"""The command line of meshtf-vocab."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from meshtf_programs.command_lines.shared.command_line import CommandLine
from meshtf_programs.command_lines.shared.path_flags import define_path, define_paths

PROGRAM = "meshtf-vocab"
MODEL_TYPES = ("unigram", "bpe")


def answer(arguments: Sequence[str]) -> int | None:
    """Answers as `CommandLine.answer`."""
    return command_line().answer(arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="trains a SentencePiece vocabulary, whose ids 0 and 1 are padding and the end of a sequence.\n"
        "Then write in a gin configuration TextTask.vocabulary = @SentencePieceVocabulary() and\n"
        'SentencePieceVocabulary.path = "books.model".',
        usage=f"{PROGRAM} (--files=PATTERN ... | --python_library) --output=FILE [--size=N] [--model_type=TYPE]",
        examples=[
            f"{PROGRAM} --files='books/**/*.txt' --size=8192 --output=books.model",
            f"{PROGRAM} --python_library --output=python.model --model_type=bpe",
        ],
        required=["output"],
    )
    define_paths(
        line.flags, "files", "Text files to train on, by glob pattern, as 'books/**/*.txt'. May be given several times."
    )
    flags.DEFINE_bool(
        "python_library",
        False,
        "Whether to train on the Python library's own source and documentation, instead of on files.",
        flag_values=line.flags,
    )
    define_path(line.flags, "output", None, "The file to write, as vocabulary.model.")
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
