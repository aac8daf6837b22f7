"""The command line of meshtf-checkpoint."""

from __future__ import annotations

import dataclasses
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from absl import flags

from meshtf_programs.command_lines.shared.command_line import (
    HELP_FLAGS,
    FlagError,
    arguments_without_flags,
    described_flag,
    wrong_value,
)
from meshtf_programs.command_lines.shared.flag_groups import define_tensorflow_logs
from meshtf_programs.command_lines.shared.path_flags import define_path
from meshtf_programs.nearest import nearest
from meshtf_programs.standard_streams import print_text
from meshtf_programs.user_paths import UserPathError, user_path

PROGRAM = "meshtf-checkpoint"
TENSORFLOW_LOGS = "tensorflow_logs"
HUGGINGFACE, MESH_TENSORFLOW, GOOGLE_BERT = "huggingface", "mesh_tensorflow", "google_bert"
DTYPES = ("float32", "float16", "bfloat16")
DONE, DIFFERENT_OR_DAMAGED, BAD_USAGE, BAD_FILE, INTERRUPTED = 0, 1, 2, 4, 130

HELP = """\
{program} shows checkpoints of meshtf, and makes others from them. It needs no mesh, whatever mesh saved them.

Usage:
{usages}

A CHECKPOINT is its folder (step_00001000), or a folder of checkpoints or of a run, which stands for its newest one.
`show`, `compare` and `convert` take .npz and .safetensors files, too. All commands but `import` and `export` also read
remote storage, as s3://bucket/run, in place.

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
    format: str = HUGGINGFACE
    rules: str = ""
    config: str = ""
    dtype: str | None = None
    is_strict: bool = True
    with_slots: bool = False
    ignored_keys: tuple[str, ...] = ()
    checks: bool = False


@dataclasses.dataclass(frozen=True)
class Command:
    """One of the program's commands.

    Attributes:
      summary: a sentence on what it does.
      arguments: how its arguments are written.
      count: how many paths it takes, at least and at most.
      flags: the flags that it takes.
    """

    summary: str
    arguments: str
    count: tuple[int, int]
    flags: tuple[str, ...] = ()


def answer(arguments: Sequence[str]) -> int | None:
    """Prints the help, or the error in the arguments, and returns the exit status. Returns None if there is work."""
    if len(arguments) < 2 or HELP_FLAGS & set(arguments[1:]):
        status = print_text(help_text())
        return status if len(arguments) > 1 else BAD_USAGE
    try:
        parse(arguments)
    except FlagError as error:
        return complain(str(error), BAD_USAGE)
    return None


def help_text() -> str:
    usages = [f"  {PROGRAM} {name} {command.arguments}" for name, command in COMMANDS.items()]
    summaries = [f"  {name:<8}  {command.summary}" for name, command in COMMANDS.items()]
    values = define_flags()
    described = [f"  --{name}\n{_wrapped(described_flag(values[name]))}" for name in (*OWN_FLAGS, TENSORFLOW_LOGS)]
    return HELP.format(
        program=PROGRAM, usages="\n".join(usages), commands="\n".join(summaries), flags="\n".join(described)
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 118, initial_indent=" " * 6, subsequent_indent=" " * 6)


def complain(message: str, status: int) -> int:
    print(f"{PROGRAM}: error: {message}", file=sys.stderr)
    return status


def parse(arguments: Sequence[str]) -> tuple[str, list[str], Options]:
    """Returns the command's name, its paths and its flags. `arguments` begin with the program's name.

    Raises:
      FlagError: for an unknown command or flag, with the nearest name, or for too few or too many paths.
    """
    values = define_flags()
    name, *paths = arguments_without_flags(values, arguments, PROGRAM)[1:] or [""]
    if wrong := _what_is_wrong(name, paths, values):
        raise FlagError(f"{wrong}\nSee {PROGRAM} --help.")
    given: dict[str, Any] = {field: values[flag].value for flag, field in OWN_FLAGS.items()}
    options = Options(**given)
    return name, paths, options


def _what_is_wrong(name: str, paths: Sequence[str], values: flags.FlagValues) -> str:
    """Returns the error in a command, in its paths, or in flags whose values have the right types."""
    if name not in COMMANDS:
        return f'there is no command "{name}"{nearest(name, COMMANDS)}; there are: {", ".join(COMMANDS)}'
    command = COMMANDS[name]
    usage, (least, most) = f"{PROGRAM} {name} {command.arguments}", command.count
    if not least <= len(paths) <= most:
        return f"{name} takes other arguments than these {len(paths)}: {usage}"
    for flag in values:
        if values[flag].present and flag not in (*command.flags, TENSORFLOW_LOGS):
            return f"{name} does not take --{flag}: {usage}"
    if wrong := wrong_value(values):
        return wrong
    if "output" in command.flags and not values["output"].value:
        return f"{name} needs --output: {usage}"
    if "" in paths:
        return f"a path is empty: {usage}"
    try:
        for path in paths:
            user_path(path)
    except UserPathError as error:
        return str(error)
    return ""


def define_flags() -> flags.FlagValues:
    """Defines the program's flags, in a set of its own."""
    values = flags.FlagValues()
    define_tensorflow_logs(values)
    define_path(
        values,
        "output",
        "",
        "Where `average` and `convert` write: a folder that is not there yet, or a file that ends in .npz or "
        ".safetensors.",
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
        "`compare` takes two tensors to be equal if no element differs by more than this. By default 0: not by one "
        "bit.",
        lower_bound=0.0,
        flag_values=values,
    )
    define_weights_flags(values)
    return values


def define_weights_flags(values: flags.FlagValues) -> None:
    """Defines the flags of `import` and `export`."""
    flags.DEFINE_enum(
        "format",
        HUGGINGFACE,
        [HUGGINGFACE, MESH_TENSORFLOW, GOOGLE_BERT],
        "The library whose weights `import` reads. `export` writes weights for huggingface alone.",
        flag_values=values,
    )
    define_path(
        values,
        "rules",
        "",
        "A file of rules by which `import` converts; by default meshtf's own for the model's type. They are examples "
        "of such files: meshtf/checkpoint/conversion/families, where meshtf is installed.",
    )
    define_path(
        values,
        "config",
        "",
        "The model that `export` writes: an imported folder, a folder of the other library, or a config.json. By "
        "default the imported folder that holds the checkpoint, or with which its training began.",
    )
    flags.DEFINE_enum(
        "dtype",
        None,
        DTYPES,
        "The type of floating numbers: of the variables after `import`, float32 by default, or in the files of "
        "`export`, by default as before the import.",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "strict",
        True,
        "Whether a tensor that no rule takes is an error. With --nostrict it is left out and listed.",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "optimizer_state",
        False,
        "Whether `import` also converts the variables of the optimizers Adafactor and Adam of mesh_tensorflow and "
        "google_bert, where they mean the same in meshtf.",
        flag_values=values,
    )
    flags.DEFINE_bool(
        "check",
        False,
        "Whether `import` compares the logits of a few tokens with those of Transformers, which must be installed.",
        flag_values=values,
    )
    flags.DEFINE_multi_string(
        "ignore_key",
        (),
        "A key of config.json that `import`, or `export` with --config, may pass over, since you know that it changes "
        "no result; give it once for each key. By default a key that the rules do not know is an error.",
        flag_values=values,
    )


OWN_FLAGS = {
    "output": "output",
    "pattern": "pattern",
    "tolerance": "tolerance",
    "format": "format",
    "rules": "rules",
    "config": "config",
    "dtype": "dtype",
    "strict": "is_strict",
    "optimizer_state": "with_slots",
    "ignore_key": "ignored_keys",
    "check": "checks",
}
"""The program's flags, and the fields of `Options` that they set."""

_MANY = 10**6
COMMANDS = {
    "list": Command("Lists checkpoints, and says which ones are damaged.", "FOLDER...", (1, _MANY)),
    "show": Command(
        "Shows a checkpoint's step, state and tensors.", "CHECKPOINT [--pattern=EXPRESSION]", (1, 1), ("pattern",)
    ),
    "compare": Command(
        "Lists the tensors in which two checkpoints differ, and by how much.",
        "CHECKPOINT CHECKPOINT [--tolerance=NUMBER]",
        (2, 2),
        ("tolerance",),
    ),
    "verify": Command("Reads all files and compares them with their checksums.", "FOLDER...", (1, _MANY)),
    "average": Command(
        "Writes the mean of several checkpoints of one model. Step, state and whole numbers are the last one's.",
        "FOLDER... --output=OUTPUT",
        (1, _MANY),
        ("output",),
    ),
    "convert": Command(
        "Writes a checkpoint, or some of its tensors, in another format.",
        "CHECKPOINT --output=OUTPUT [--pattern=EXPRESSION]",
        (1, 1),
        ("output", "pattern"),
    ),
    "import": Command(
        "Makes a checkpoint and a model's gin file from the weights of another library.",
        "SOURCE OUTPUT [--format=NAME] [--rules=FILE] [--dtype=TYPE] [--nostrict]\n"
        "      [--optimizer_state] [--ignore_key=KEY] [--check]",
        (2, 2),
        ("format", "rules", "dtype", "strict", "optimizer_state", "ignore_key", "check"),
    ),
    "export": Command(
        "Writes a checkpoint as weights of another library.",
        "CHECKPOINT OUTPUT [--format=NAME] [--config=PATH] [--dtype=TYPE] [--nostrict]\n      [--ignore_key=KEY]",
        (2, 2),
        ("format", "config", "ignore_key", "dtype", "strict"),
    ),
}
