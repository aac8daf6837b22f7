"""The command line of meshtf-compile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from meshtf_programs.command_lines.shared.command_line import CommandLine
from meshtf_programs.command_lines.shared.flag_groups import (
    define_gin_flags,
    define_layout_flags,
    define_recipe_flag,
)
from meshtf_programs.command_lines.shared.path_flags import define_path

PROGRAM = "meshtf-compile"
CACHE = Path("~/.cache/meshtf/compile")


def answer(arguments: Sequence[str]) -> int | None:
    """Answers as `CommandLine.answer`."""
    return command_line().answer(arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="compiles a training step with libtpu, the TPU's own compiler, for a TPU that need not be\n"
        "there, and prints the memory that each core needs and what a step costs. Nothing is trained.",
        usage=f"{PROGRAM} --gin_file=NAME --topology=NAME [--mesh_shape=...] [--layout=RULES] [--json]",
        examples=[
            f"{PROGRAM} --gin_file=lm_tiny.gin --mesh_shape='rows:2;cols:4' --topology=v5e:2x4",
            f"{PROGRAM} --gin_file=lm_tiny.gin --gin_file=llama_2_70b.gin --mesh_shape='rows:64;cols:8' "
            "--topology=v5p:8x8x8 --gin_param='TextTask.length=4096' --gin_param='Training.batch_size=1024' --json",
        ],
        required=["gin_file", "topology"],
    )
    define_gin_flags(line.flags)
    define_recipe_flag(line.flags)
    define_layout_flags(line.flags)
    _define_compile_flags(line.flags)
    return line


def _define_compile_flags(values: flags.FlagValues) -> None:
    flags.DEFINE_string(
        "topology",
        None,
        "The TPU: a generation and its chips along each axis, as 'v5e:4x4' or 'v5p:2x2x4'. It has as many cores as the "
        "mesh.",
        flag_values=values,
    )
    flags.DEFINE_bool("json", False, "Whether to print JSON, in place of a table.", flag_values=values)
    define_path(values, "hlo_file", None, "The file to which the optimized and scheduled program is written, as text.")
    define_path(
        values,
        "cache_dir",
        str(CACHE),
        "The folder that keeps the compiler's answers. The same program for the same TPU is then compiled only once.",
    )
