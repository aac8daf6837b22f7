"""The command line of meshtf-plan."""

from __future__ import annotations

from collections.abc import Sequence

from absl import flags

from meshtf_programs.command_lines.shared.command_line import CommandLine
from meshtf_programs.command_lines.shared.flag_groups import (
    define_gin_flags,
    define_layout_flags,
    define_machine_flag,
    define_recipe_flag,
    define_search_flags,
    define_trust_config,
)
from meshtf_programs.command_lines.shared.path_flags import define_path

PROGRAM = "meshtf-plan"


def answer(arguments: Sequence[str]) -> int | None:
    """Answers as `CommandLine.answer`."""
    return command_line().answer(arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="plans a training step on a mesh that need not be there: time, memory and FLOPs per core,\n"
        "and every collective with its bytes. Nothing is trained and no weight is made.",
        usage=f"{PROGRAM} (--gin_file=NAME | --model_dir=FOLDER) [--gin_param=BINDING ...] [--mesh_shape=...] ...",
        examples=[
            f"{PROGRAM} --gin_file=lm_tiny.gin --mesh_shape='rows:32;cols:4'",
            f"{PROGRAM} --gin_file=lm_tiny.gin --gin_file=llama_2_70b.gin --mesh_shape='rows:64;cols:8' "
            "--gin_param='TextTask.length=4096' --gin_param='Training.batch_size=1024'",
            f"{PROGRAM} --gin_file=lm_tiny.gin --machine=v5e --compare=fsdp --html=plan.html",
        ],
        required=["gin_file|model_dir"],
    )
    define_path(
        line.flags,
        "model_dir",
        None,
        "A run, or an imported folder, whose configuration is read before the gin files.",
    )
    define_trust_config(line.flags)
    define_gin_flags(line.flags)
    define_recipe_flag(line.flags)
    define_layout_flags(line.flags, searches=True)
    flags.DEFINE_integer(
        "processes",
        None,
        "The number of processes that share the mesh; overrides Training.num_processes. The report says which bytes "
        "go between them.",
        lower_bound=1,
        flag_values=line.flags,
    )
    define_machine_flag(line.flags)
    define_search_flags(line.flags)
    _define_output_flags(line.flags)
    return line


def _define_output_flags(values: flags.FlagValues) -> None:
    """Defines --full, --json, --compare, --html, --serve and --port."""
    flags.DEFINE_bool(
        "full",
        False,
        "Whether to print the whole report, in place of a summary. With --json, every operation, too.",
        flag_values=values,
    )
    flags.DEFINE_bool("json", False, "Whether to print JSON: a list with an entry for each layout.", flag_values=values)
    flags.DEFINE_multi_string(
        "compare",
        [],
        "Another layout, which a table and the page show beside the first: a recipe's name, a layout, auto, or "
        "settings, as 'mesh_shape=rows:4;cols:2 layout=batch:rows'. The settings are mesh_shape, layout, "
        "parameter_layout, activation_layout and batch_size. May be given several times.",
        flag_values=values,
    )
    define_path(
        values,
        "html",
        None,
        "A file to write: a page, all in one file. It shows the mesh, the part that each core holds, the memory and "
        "the time of a step, its messages, and layouts side by side.",
    )
    flags.DEFINE_bool(
        "serve",
        False,
        "Whether to serve the page, to this machine alone, with controls that plan other meshes, layouts and batch "
        "sizes.",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "port",
        0,
        "With --serve: the port; by default one that is free.",
        lower_bound=0,
        upper_bound=65535,
        flag_values=values,
    )
