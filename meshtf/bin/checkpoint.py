"""meshtf-checkpoint: looks at checkpoints, and makes others of them, without a mesh."""

from __future__ import annotations

import dataclasses
import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import tensorflow as tf
from absl import flags

from meshtf.bin._checkpoint_text import comparison_text, contents_text, list_row, list_text
from meshtf.bin._cluster import is_left_to_process_0
from meshtf.bin._command_line import define_tensorflow_logs
from meshtf.bin._weights_commands import HUGGINGFACE, MESH_TENSORFLOW, export_weights, import_weights
from meshtf.checkpoint.average import Average
from meshtf.checkpoint.checkpoint_paths import all_checkpoints, open_checkpoint, open_source, write_to
from meshtf.checkpoint.comparison import compare
from meshtf.checkpoint.conversion.exporting import FLOATING
from meshtf.checkpoint.formats.tensor_source import Part
from meshtf.checkpoint.saved_checkpoint import SavedCheckpoint
from meshtf.errors import DamagedCheckpointError, MeshtfError, SaveError, nearest

PROGRAM = "meshtf-checkpoint"
TENSORFLOW_LOGS = "tensorflow_logs"
DONE, DIFFERENT_OR_DAMAGED, BAD_USAGE, BAD_FILE, INTERRUPTED = 0, 1, 2, 4, 130

HELP = """\
{program} looks at checkpoints of meshtf, and makes others of them. It needs no mesh, whatever mesh saved them.

Usage:
{usages}

A CHECKPOINT is its folder (step_00001000), or a folder of checkpoints, or of a run: then the newest is meant. `show`,
`compare` and `convert` take .npz and .safetensors files, too.

Commands:
{commands}

Flags:
{flags}

Examples:
  {program} list runs/lm_tiny
  {program} show runs/lm_tiny --pattern=attention
  {program} compare runs/a/checkpoints/step_00001000 runs/b/checkpoints/step_00001000
  {program} average runs/a/checkpoints/step_0000{{1000,2000,3000}} --output=averaged
  {program} convert runs/lm_tiny --output=lm_tiny.safetensors
  {program} import --format=huggingface downloads/gpt2 imported/gpt2
  {program} export --format=huggingface runs/fine_tuned exported/gpt2

Exit status:
  0    done; compared checkpoints are equal, verified ones whole
  1    compared checkpoints differ; a checkpoint is damaged
  2    wrong usage; there is no such checkpoint, or it does not fit
  4    a file cannot be read or written
  130  interrupted
"""


@dataclasses.dataclass(frozen=True)
class Options:
    """Values of the flags."""

    output: str = ""
    pattern: str = ""
    tolerance: float = 0.0
    format: str = "huggingface"
    rules: str = ""
    config: str = ""
    dtype: str = ""
    is_strict: bool = True


@dataclasses.dataclass(frozen=True)
class Command:
    """One of the program's commands.

    Attributes:
      run: does it with these paths and flags; returns the exit status.
      summary: of what it does.
      arguments: how they are written.
      count: how many paths it takes, at least and at most.
      flags: that it takes.
    """

    run: Callable[[Sequence[Path], Options], int]
    summary: str
    arguments: str
    count: tuple[int, int]
    flags: tuple[str, ...] = ()


class UsageError(Exception):
    """Arguments that the program does not take."""


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Does what the arguments say, the first of which is the program's name; returns the exit status."""
    if is_left_to_process_0():
        return DONE
    if len(arguments) < 2 or {"-h", "-help", "--help", "--helpshort"} & set(arguments[1:]):
        print(help_text(), end="")
        return DONE if len(arguments) > 1 else BAD_USAGE
    try:
        command, paths, options = parse(arguments)
        return command.run(paths, options)
    except UsageError as error:
        return complain(f"{error}\nSee {PROGRAM} --help.", BAD_USAGE)
    except BrokenPipeError:  # what reads the output has read enough, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DIFFERENT_OR_DAMAGED
    except DamagedCheckpointError as error:
        return complain(str(error), DIFFERENT_OR_DAMAGED)
    except (OSError, tf.errors.OpError) as error:
        return complain(f"a file cannot be read or written: {error}", BAD_FILE)
    except MeshtfError as error:
        return complain(str(error), BAD_FILE if isinstance(error, SaveError) else BAD_USAGE)
    except KeyboardInterrupt:
        return complain("interrupted", INTERRUPTED)


def help_text() -> str:
    usages = [f"  {PROGRAM} {name} {command.arguments}" for name, command in COMMANDS.items()]
    summaries = [f"  {name:<8}  {command.summary}" for name, command in COMMANDS.items()]
    values = define_flags()
    described = [f"  --{name}\n{_wrapped(values[name].help or '')}" for name in (*OWN_FLAGS, TENSORFLOW_LOGS)]
    return HELP.format(
        program=PROGRAM, usages="\n".join(usages), commands="\n".join(summaries), flags="\n".join(described)
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 118, initial_indent=" " * 6, subsequent_indent=" " * 6)


def complain(message: str, status: int) -> int:
    print(f"{PROGRAM}: error: {message}", file=sys.stderr)
    return status


def parse(arguments: Sequence[str]) -> tuple[Command, list[Path], Options]:
    """The command, its paths and its flags; `arguments` begin with the program's name.

    Raises:
      UsageError: there is no such command or flag, with the nearest; or too few or too many paths.
    """
    values = define_flags()
    try:
        name, *paths = values(arguments, known_only=False)[1:] or [""]
    except flags.Error as error:
        raise UsageError(str(error)) from None
    if name not in COMMANDS:
        raise UsageError(f'there is no command "{name}"{nearest(name, COMMANDS)}; there are: {", ".join(COMMANDS)}')
    command = COMMANDS[name]
    least, most = command.count
    if not least <= len(paths) <= most:
        raise UsageError(f"{name} takes other arguments than these {len(paths)}: {PROGRAM} {name} {command.arguments}")
    for flag in values:
        if values[flag].present and flag not in (*command.flags, TENSORFLOW_LOGS):
            raise UsageError(f"{name} does not take --{flag}: {PROGRAM} {name} {command.arguments}")
    if "output" in command.flags and not values["output"].value:
        raise UsageError(f"{name} needs --output: {PROGRAM} {name} {command.arguments}")
    options = Options(**{name: values[flag].value for flag, name in OWN_FLAGS.items()})
    return command, [Path(path).expanduser() for path in paths], options


def define_flags() -> flags.FlagValues:
    """The program's flags, in a set of its own."""
    values = flags.FlagValues()
    define_tensorflow_logs(values)
    flags.DEFINE_string(
        "output",
        "",
        "Where `average` and `convert` write: a folder that is not there yet, or a file that ends in .npz or "
        ".safetensors.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "pattern",
        "",
        "`show` lists and `convert` writes only tensors in whose names this regular expression is found.",
        flag_values=values,
    )
    flags.DEFINE_float(
        "tolerance",
        0.0,
        "`compare` takes tensors for equal whose elements differ by no more than this. By default 0: not by one bit.",
        lower_bound=0.0,
        flag_values=values,
    )
    define_weights_flags(values)
    return values


def define_weights_flags(values: flags.FlagValues) -> None:
    """Those of `import` and `export`."""
    flags.DEFINE_enum(
        "format",
        HUGGINGFACE,
        [HUGGINGFACE, MESH_TENSORFLOW],
        "Whose weights `import` reads; `export` writes those of huggingface alone.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "rules",
        "",
        "A file of rules by which `import` converts; by default meshtf's own for the model's type. docs/weights.md has "
        "its form.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "config",
        "",
        "Of which model `export` writes: an imported folder, a folder of the other library, or a config.json. By "
        "default the imported folder that the checkpoint is of, or with which its training began.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "dtype",
        "",
        ["", *FLOATING],
        "Of floating numbers: of variables after `import`, float32 by default; in the files of `export`, by default as "
        "they were before the import.",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "strict",
        True,
        "Whether a tensor that no rule takes is an error, or else left out and listed.",
        flag_values=values,
    )


def list_checkpoints(paths: Sequence[Path], _: Options) -> int:
    rows = [list_row(folder) for folder in all_checkpoints(paths)]
    print(list_text(rows))
    return DIFFERENT_OR_DAMAGED if any(isinstance(row, str) for row in rows) else DONE


def show(paths: Sequence[Path], options: Options) -> int:
    print(contents_text(open_source(paths[0]), _pattern(options.pattern)))
    return DONE


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(f"--pattern={text} is no regular expression: {error}") from None


def compare_two(paths: Sequence[Path], options: Options) -> int:
    first, second = (open_source(path) for path in paths)
    comparison = compare(first, second, options.tolerance)
    print(comparison_text(comparison, first, second))
    return DONE if comparison.are_equal else DIFFERENT_OR_DAMAGED


def verify(paths: Sequence[Path], _: Options) -> int:
    """Verifies each, damaged ones before it or not."""
    status = DONE
    for path in all_checkpoints(paths):
        try:
            SavedCheckpoint.open(path).verify()
            print(f"{path} is whole")
        except DamagedCheckpointError as error:
            print(error)
            status = DIFFERENT_OR_DAMAGED
    return status


def average(paths: Sequence[Path], options: Options) -> int:
    sources = [open_checkpoint(path) for path in all_checkpoints(paths)]
    write_to(Average(sources), Path(options.output))
    steps = ", ".join(str(source.step) for source in sources)
    print(f"{options.output} is the mean of {len(sources)} checkpoints, of steps {steps}")
    return DONE


def convert(paths: Sequence[Path], options: Options) -> int:
    source = open_source(paths[0])
    if options.pattern:
        pattern = _pattern(options.pattern)
        source = Part(source, [name for name in source.tensors if pattern.search(name)], source.step, source.state)
    if not source.tensors:
        raise UsageError(f"no tensor of {paths[0]} has {options.pattern!r} in its name")
    write_to(source, Path(options.output))
    print(f"{options.output} has the {len(source.tensors)} tensors of {paths[0]}, step {source.step}")
    return DONE


def import_(paths: Sequence[Path], options: Options) -> int:
    source, output = paths
    dtype = options.dtype or "float32"
    print(import_weights(source, output, options.format, options.rules, dtype, is_strict=options.is_strict))
    return DONE


def export(paths: Sequence[Path], options: Options) -> int:
    path, output = paths
    if options.format != HUGGINGFACE:
        raise UsageError(f"export writes --format={HUGGINGFACE} alone, and not {options.format}")
    print(export_weights(path, output, options.config, options.dtype, is_strict=options.is_strict))
    return DONE


OWN_FLAGS = {
    "output": "output",
    "pattern": "pattern",
    "tolerance": "tolerance",
    "format": "format",
    "rules": "rules",
    "config": "config",
    "dtype": "dtype",
    "strict": "is_strict",
}
"""The program's flags, and the fields of `Options` that they are."""

_MANY = 10**6
COMMANDS = {
    "list": Command(list_checkpoints, "Lists checkpoints, and says which are damaged.", "FOLDER...", (1, _MANY)),
    "show": Command(show, "Shows step, state and tensors.", "CHECKPOINT [--pattern=EXPRESSION]", (1, 1), ("pattern",)),
    "compare": Command(
        compare_two,
        "Says in which tensors two checkpoints differ, and by how much.",
        "CHECKPOINT CHECKPOINT [--tolerance=NUMBER]",
        (2, 2),
        ("tolerance",),
    ),
    "verify": Command(verify, "Reads everything and compares it with the checksums.", "FOLDER...", (1, _MANY)),
    "average": Command(
        average,
        "Writes the mean of several checkpoints of one model; step, state and whole numbers are the last one's.",
        "FOLDER... --output=OUTPUT",
        (1, _MANY),
        ("output",),
    ),
    "convert": Command(
        convert,
        "Writes a checkpoint, or some of its tensors, in another format.",
        "CHECKPOINT --output=OUTPUT [--pattern=EXPRESSION]",
        (1, 1),
        ("output", "pattern"),
    ),
    "import": Command(
        import_,
        "Makes a checkpoint and a model's gin file of weights of another library.",
        "SOURCE OUTPUT [--format=FORMAT] [--rules=FILE] [--dtype=TYPE] [--nostrict]",
        (2, 2),
        ("format", "rules", "dtype", "strict"),
    ),
    "export": Command(
        export,
        "Writes a checkpoint as weights of another library.",
        "CHECKPOINT OUTPUT [--format=FORMAT] [--config=PATH] [--dtype=TYPE] [--nostrict]",
        (2, 2),
        ("format", "config", "dtype", "strict"),
    ),
}


if __name__ == "__main__":
    run()
