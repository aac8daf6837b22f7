"""meshtf-import-gin: translates gin of Mesh TensorFlow into gin of meshtf."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags

from meshtf.bin.shared.run_program import run_program
from meshtf.checkpoint.conversion.operative_config import read_source
from meshtf.compat.mesh_tensorflow_gin.translation import Translation, translated
from meshtf.errors import CheckpointError
from meshtf.files.replaced_file import replace_file
from meshtf.train.configuration import ConfigurationError
from meshtf_programs.command_lines.import_gin import PROGRAM, command_line, with_source
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.user_paths import user_path

__all__ = ["PROGRAM", "command_line", "main", "run"]


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Translates, and returns the exit status."""
    return run_program(command_line(), prepare, with_source(arguments), has_mesh=False)


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads and translates the source."""
    source = user_path(values.source)
    try:
        translation = translated(read_source(source), source.name)
    except CheckpointError as error:
        raise ConfigurationError(str(error)) from None
    output = None if values.output is None else user_path(values.output)
    if output is not None and output.exists():
        raise ConfigurationError(f"--output={output} is there already; give another name")
    if values.strict and translation.losses:
        raise ConfigurationError(
            f"{_losses_text(translation)}\nNothing was written. Without --strict the other lines are written."
        )
    return functools.partial(write, translation, output)


def write(translation: Translation, output: Path | None) -> int:
    if output is None:
        print(translation.text)
    else:
        replace_file(output, translation.text.encode())
        print(f"written to: {output}")
    if translation.losses:
        print(_losses_text(translation), file=sys.stderr)
    return ExitStatus.DONE


def _losses_text(translation: Translation) -> str:
    count = len(translation.losses)
    title = f"{count} line{' has' if count == 1 else 's have'} no counterpart:"
    return "\n".join([title, *(f"  {loss}" for loss in translation.losses)])


if __name__ == "__main__":
    run()
