"""The command line of meshtf-probe."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from meshtf_programs.command_lines.shared.command_line import CommandLine
from meshtf_programs.command_lines.shared.path_flags import define_path

PROGRAM = "meshtf-probe"


def answer(arguments: Sequence[str]) -> int | None:
    """Answers as `CommandLine.answer`."""
    return command_line().answer(arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="measures this machine's virtual CPUs or GPUs, in about a minute, and writes a\n"
        "file that describes it, for meshtf-plan --machine=FILE.",
        usage=f"{PROGRAM} --out=FILE.toml [--cores=N | --backend=gpu]",
        examples=[
            f"{PROGRAM} --out=here.toml",
            f"{PROGRAM} --out=here.toml --cores=4",
            f"{PROGRAM} --out=gpu.toml --backend=gpu",
        ],
        required=["out"],
    )
    define_path(line.flags, "out", None, "The file to write, ending in .toml.")
    flags.DEFINE_integer(
        "cores",
        8,
        "The number of virtual CPUs that share the machine while it is measured. It is even.",
        lower_bound=2,
        flag_values=line.flags,
    )
    flags.DEFINE_enum(
        "backend",
        "cpu",
        ["cpu", "gpu"],
        "The cores that are measured: cpu (virtual CPUs; the default) or gpu (this machine's GPUs, with the extra "
        "cuda12 or cuda13).",
        flag_values=line.flags,
    )
    flags.DEFINE_integer(
        "virtual",
        None,
        "With --backend=gpu: the number of virtual GPUs, which run on this machine's processors.",
        lower_bound=1,
        flag_values=line.flags,
    )
    return line
