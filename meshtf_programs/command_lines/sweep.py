"""The command line of meshtf-sweep."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from meshtf_programs.command_lines.shared.command_line import CommandLine
from meshtf_programs.command_lines.shared.flag_groups import define_gin_file, define_gin_param
from meshtf_programs.command_lines.shared.path_flags import define_path

PROGRAM = "meshtf-sweep"


def answer(arguments: Sequence[str]) -> int | None:
    """Answers as `CommandLine.answer`."""
    return command_line().answer(arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="trains with every combination of some bindings, or with samples of them, and ranks the results.\n"
        "The same command again continues where it stopped; finished trials are kept.",
        usage=f"{PROGRAM} --gin_file=NAME ... --sweep_file=FILE [--samples=N] [--jobs=N | --write_jobs=FILE]",
        examples=[
            f"{PROGRAM} --gin_file=digits_mlp.gin --sweep_file=rates.gin",
            f"{PROGRAM} --gin_file=digits_mlp.gin --sweep_file=rates.gin --samples=20 --jobs=2",
            f"{PROGRAM} --gin_file=lm_tiny.gin --sweep_file=rates.gin --write_jobs=jobs.sh "
            "--launch='meshtf-launch --processes=2 --'",
        ],
        required=["gin_file", "sweep_file"],
    )
    define_gin_file(line.flags)
    define_gin_param(line.flags)
    define_path(
        line.flags,
        "sweep_file",
        None,
        "A gin file with the choices, as Sweep.choices = {'AdamWOptimizer.learning_rate': [1e-3, 3e-3]}.",
    )
    define_path(
        line.flags,
        "sweep_dir",
        None,
        "The folder of the sweep, with a run folder for each trial. By default sweeps/<name of the sweep file>.",
    )
    _define_how_to_run(line)
    return line


def _define_how_to_run(line: CommandLine) -> None:
    flags.DEFINE_integer(
        "samples",
        None,
        "The number of trials that are drawn at random. By default there is a grid: a trial for every combination.",
        lower_bound=1,
        flag_values=line.flags,
    )
    flags.DEFINE_integer("seed", 0, "The seed of the samples; 0 by default.", lower_bound=0, flag_values=line.flags)
    flags.DEFINE_integer(
        "jobs",
        1,
        "The number of trials that run at the same time; 1 by default.",
        lower_bound=1,
        flag_values=line.flags,
    )
    define_path(
        line.flags,
        "write_jobs",
        None,
        "A file to write, with a shell command in each line for each trial that has not ended. No trial runs here. "
        "Once the commands have run, the command without this flag shows the results.",
    )
    flags.DEFINE_string(
        "launch",
        None,
        "A command that starts each trial, such as 'meshtf-launch --processes=2 --'. By default a trial is one "
        "process.",
        flag_values=line.flags,
    )
