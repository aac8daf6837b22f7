"""The command line of meshtf-benchmark."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from meshtf_programs.command_lines.shared.command_line import CommandLine
from meshtf_programs.command_lines.shared.flag_groups import (
    define_allow_unread_bindings,
    define_gin_param,
    define_mesh_flags,
)
from meshtf_programs.command_lines.shared.path_flags import define_path
from meshtf_programs.quality_tasks import listed_tasks

PROGRAM = "meshtf-benchmark"
RULES = ("mlperf",)


def answer(arguments: Sequence[str]) -> int | None:
    """Answers as `CommandLine.answer`."""
    return command_line().answer(arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="times trainings until they reach a quality, by the rules of MLPerf.\n"
        "It writes a log of each run in MLPerf's format, a table and a picture.",
        usage=f"{PROGRAM} --task=NAME [--runs=N] [--seed=N] [--out=FOLDER] [--gin_param=BINDING ...]",
        examples=[
            f"{PROGRAM} --task=digits_resnet",
            f"{PROGRAM} --task=letters_vit --runs=1 --mesh_shape='rows:8' --out=vit_on_8",
            f"{PROGRAM} --list",
        ],
        required=["task"],
        listing=listed_tasks,
    )
    flags.DEFINE_string(
        "task",
        None,
        "The task: one of the names that --list shows, or the path of a gin file that has a Training and a "
        "QualityTarget.",
        flag_values=line.flags,
    )
    flags.DEFINE_bool(
        "list",
        False,
        "Whether only to list the tasks with their targets, and the published trainings that meshtf-plan can plan.",
        flag_values=line.flags,
    )
    flags.DEFINE_enum(
        "rules",
        RULES[0],
        RULES,
        "The rules. By MLPerf's the clock starts before a run reads any data, after its programs are compiled, and "
        "stops when an evaluation reaches the target. The result is the mean of all runs but the fastest and the "
        "slowest.",
        flag_values=line.flags,
    )
    flags.DEFINE_integer("runs", 5, "The number of runs, each with a seed of its own.", 1, flag_values=line.flags)
    flags.DEFINE_integer("seed", 0, "The seed of the first run. Each next run adds 1.", 0, flag_values=line.flags)
    define_path(line.flags, "out", None, "The folder of the results, empty or new. By default benchmarks/<task>.")
    define_gin_param(line.flags)
    define_allow_unread_bindings(line.flags)
    define_mesh_flags(line.flags)
    return line
