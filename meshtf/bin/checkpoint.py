"""meshtf-checkpoint: inspects and converts checkpoints, without a mesh."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from meshtf.bin.checkpoints.checkpoint_text import comparison_text, contents_text, list_row, list_text
from meshtf.bin.checkpoints.weights_commands import export_weights, import_weights
from meshtf.bin.shared.cluster import is_left_to_process_0
from meshtf.checkpoint.average import Average
from meshtf.checkpoint.checkpoint_paths import all_checkpoints, open_checkpoint, open_source, write_to
from meshtf.checkpoint.comparison import compare
from meshtf.checkpoint.formats.tensor_source import Part
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from meshtf.errors import CheckpointError, DamagedCheckpointError, MeshtfError, SaveError, counted
from meshtf.files.remote.failures import without_secrets
from meshtf.files.remote.remote_folder import RemoteFolder, is_remote, place_of
from meshtf_programs.command_lines.checkpoint import (
    BAD_FILE,
    BAD_USAGE,
    DIFFERENT_OR_DAMAGED,
    DONE,
    HUGGINGFACE,
    INTERRUPTED,
    PROGRAM,
    Options,
    answer,
    complain,
    help_text,
    parse,
)
from meshtf_programs.command_lines.shared.command_line import FlagError
from meshtf_programs.standard_streams import discard_output
from meshtf_programs.user_paths import UserPathError, user_path

_REMOTE = """\
{place} is in remote storage, which only `list`, `show`, `verify`, `compare`, `average` and `convert` read. Copy it
to this machine, or give the output a path here and copy it there."""

__all__ = ["PROGRAM", "help_text", "main", "run"]


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Runs the command in the arguments, which begin with the program's name. Returns the exit status."""
    try:
        if is_left_to_process_0():
            return DONE
        if (status := answer(arguments)) is not None:
            return status
        command, paths, options = parse(arguments)
        return WORK[command](list(map(place_of, paths)), options)
    except FlagError as error:
        return complain(f"{error}\nSee {PROGRAM} --help.", BAD_USAGE)
    except BrokenPipeError:
        discard_output()
        return DIFFERENT_OR_DAMAGED
    except DamagedCheckpointError as error:
        return complain(str(error), DIFFERENT_OR_DAMAGED)
    except (OSError, tf.errors.OpError) as error:
        return complain(f"a file cannot be read or written: {error}", BAD_FILE)
    except UserPathError as error:
        return complain(str(error), BAD_USAGE)
    except MeshtfError as error:
        return complain(str(error), BAD_FILE if isinstance(error, SaveError) else BAD_USAGE)
    except KeyboardInterrupt:
        return complain("interrupted", INTERRUPTED)


def list_checkpoints(paths: Sequence[Path | RemoteFolder], _: Options) -> int:
    rows = [list_row(folder) for folder in all_checkpoints(paths)]
    print(list_text(rows))
    return DIFFERENT_OR_DAMAGED if any(isinstance(row, str) for row in rows) else DONE


def show(paths: Sequence[Path | RemoteFolder], options: Options) -> int:
    print(contents_text(open_source(paths[0]), _pattern(options.pattern)))
    return DONE


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise FlagError(f"--pattern={text} is no regular expression: {error}") from None


def compare_two(paths: Sequence[Path | RemoteFolder], options: Options) -> int:
    first, second = (open_source(path) for path in paths)
    comparison = compare(first, second, options.tolerance)
    print(comparison_text(comparison, first, second))
    return DONE if comparison.are_equal else DIFFERENT_OR_DAMAGED


def verify(paths: Sequence[Path | RemoteFolder], _: Options) -> int:
    """Verifies each checkpoint, even if an earlier one is damaged."""
    status = DONE
    for path in all_checkpoints(paths):
        try:
            SavedCheckpoint.open(path).verify()
            print(f"{path} is whole")
        except DamagedCheckpointError as error:
            print(error)
            status = DIFFERENT_OR_DAMAGED
    return status


def average(paths: Sequence[Path | RemoteFolder], options: Options) -> int:
    sources = [open_checkpoint(path) for path in all_checkpoints(paths)]
    write_to(Average(sources), _on_this_machine(options.output))
    steps = ", ".join(str(source.step) for source in sources)
    print(f"{options.output} is the mean of {counted(len(sources), 'checkpoint')}, of steps {steps}")
    return DONE


def convert(paths: Sequence[Path | RemoteFolder], options: Options) -> int:
    source = open_source(paths[0])
    if options.pattern:
        pattern = _pattern(options.pattern)
        source = Part(source, [name for name in source.tensors if pattern.search(name)], source.step, source.state)
    if not source.tensors:
        raise FlagError(f"no tensor of {paths[0]} has {options.pattern!r} in its name")
    write_to(source, _on_this_machine(options.output))
    print(f"{options.output} has the {counted(len(source.tensors), 'tensor')} of {paths[0]}, step {source.step}")
    return DONE


def import_(paths: Sequence[Path | RemoteFolder], options: Options) -> int:
    source, output = map(_on_this_machine, paths)
    print(import_weights(source, output, options))
    return DONE


def export(paths: Sequence[Path | RemoteFolder], options: Options) -> int:
    path, output = map(_on_this_machine, paths)
    if options.format != HUGGINGFACE:
        raise FlagError(f"export writes only --format={HUGGINGFACE}, and not {options.format}")
    print(export_weights(path, output, options))
    return DONE


def _on_this_machine(place: str | Path | RemoteFolder) -> Path:
    """Returns a path of this machine. Raises CheckpointError for remote storage."""
    if isinstance(place, RemoteFolder) or is_remote(place):
        raise CheckpointError(_REMOTE.format(place=without_secrets(str(place))))
    return user_path(place)


WORK: Mapping[str, Callable[[Sequence[Path | RemoteFolder], Options], int]] = {
    "list": list_checkpoints,
    "show": show,
    "compare": compare_two,
    "verify": verify,
    "average": average,
    "convert": convert,
    "import": import_,
    "export": export,
}
"""The function of each command. It receives the paths and the flags, and returns the exit status."""


if __name__ == "__main__":
    run()
