"""The command line of meshtf-train."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from meshtf_programs.command_lines.shared.command_line import CommandLine
from meshtf_programs.command_lines.shared.flag_groups import (
    define_gin_flags,
    define_machine_flag,
    define_mesh_flags,
    define_recipe_flag,
    define_search_flags,
)
from meshtf_programs.command_lines.shared.path_flags import define_path

PROGRAM = "meshtf-train"


def answer(arguments: Sequence[str]) -> int | None:
    """Answers as `CommandLine.answer`."""
    return command_line().answer(arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="trains a model on a mesh of processors, as a gin configuration describes.\n"
        "The same command again resumes where it stopped.",
        usage=f"{PROGRAM} --gin_file=NAME [--gin_param=BINDING ...] [--model_dir=FOLDER] [--layout=RULES ...]",
        examples=[
            f"{PROGRAM} --gin_file=digits_mlp.gin",
            f"{PROGRAM} --gin_file=digits_mlp.gin --layout='batch:rows+cols' --model_dir=runs/by_data",
            f"{PROGRAM} --gin_file=digits_mlp.gin --gin_param='Training.num_steps=600'",
            f"{PROGRAM} --list",
        ],
        required=["gin_file"],
    )
    define_gin_flags(line.flags)
    flags.DEFINE_bool(
        "list",
        False,
        "Whether only to list the configurations of the current folder and of meshtf, a line for each.",
        flag_values=line.flags,
    )
    define_recipe_flag(line.flags)
    define_mesh_flags(line.flags, searches=True)
    define_machine_flag(line.flags)
    define_search_flags(line.flags)
    define_path(
        line.flags,
        "model_dir",
        None,
        "The run's folder, for its checkpoints, metrics, configuration and reports. By default runs/<name of the last "
        "gin file>.",
    )
    define_path(
        line.flags,
        "working_dir",
        "~/.cache/meshtf/runs",
        "The local folder in which a run of remote storage writes its checkpoints and other files before it sends "
        "them.",
    )
    flags.DEFINE_bool(
        "from_scratch",
        False,
        "Whether training begins at step 0 although the folder holds a run. That run moves into a subfolder, "
        "superseded_1 or the next that is free. Other programs can still read it there.",
        flag_values=line.flags,
    )
    flags.DEFINE_bool(
        "allow_changed_data",
        False,
        "Whether to continue a run although its data have changed since its last checkpoint. It continues from the "
        "same place in the new data's order. Without this flag changed data are an error, which says what has changed.",
        flag_values=line.flags,
    )
    flags.DEFINE_bool(
        "report",
        False,
        "Whether to print the report of the training step: layouts, memory, every collective. It is in report.txt, "
        "too.",
        flag_values=line.flags,
    )
    flags.DEFINE_bool(
        "dry_run",
        False,
        "Whether only to rehearse: a batch goes through training, evaluation, a checkpoint and back, in a temporary "
        "folder that is removed. Prints the memory and the time of a step.",
        flag_values=line.flags,
    )
    return line
