"""meshtf-vocab: trains a SentencePiece vocabulary on text."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags

from meshtf.bin.shared.output_file import check_is_no_device, check_overwrites_no_input
from meshtf.bin.shared.run_program import run_program
from meshtf.errors import counted
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.sources.document import Source
from meshtf.train.data.sources.python_library import python_library
from meshtf.train.data.sources.text_files import TextFiles
from meshtf.train.data.vocabularies.train_sentencepiece import train_sentencepiece
from meshtf_programs.command_lines.vocab import PROGRAM, command_line
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.user_paths import user_path

__all__ = ["PROGRAM", "command_line", "main", "run"]


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Trains, and returns the exit status."""
    return run_program(command_line(), prepare, arguments, has_mesh=False)


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Finds the text to train on."""
    if bool(values.files) == values.python_library:
        raise ConfigurationError(
            f"give either --files or --python_library, the text to train on\nSee {PROGRAM} --help."
        )
    check_is_no_device(values.output, "--output")
    output = user_path(values.output)
    if values.python_library:
        return functools.partial(train, python_library(), output, values)
    source = TextFiles(tuple(values.files))
    if output.is_file():
        check_overwrites_no_input(values.output, "--files", source.files())
    return functools.partial(train, source, output, values)


def train(source: Source, output: Path, values: flags.FlagValues) -> int:
    num_bytes = train_sentencepiece(source, output, values.size, values.model_type, values.character_coverage)
    print(f"trained on:    {source} ({counted(num_bytes, 'byte')})")
    print(f"written to:    {output} ({counted(values.size, 'id')}, {values.model_type})")
    return ExitStatus.DONE


if __name__ == "__main__":
    run()
