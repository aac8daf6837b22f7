"""meshtf-plan: what a training would need and send on a mesh of any size, without devices."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence

from absl import flags

import meshtf as mtf
from meshtf.bin._cluster import is_left_to_process_0
from meshtf.bin._command_line import (
    CommandLine,
    define_gin_flags,
    define_layout_flags,
    define_recipe_flag,
    gin_files,
    mesh_bindings,
)
from meshtf.bin._exit_status import ExitStatus
from meshtf.bin._run_program import run_program
from meshtf.train.configuration import check_every_binding_is_read, read_configuration
from meshtf.train.monitoring.description import one_line
from meshtf.train.step_programs import training_step
from meshtf.train.training import Training, configured_training

PROGRAM = "meshtf-plan"


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Plans; returns the exit status."""
    if is_left_to_process_0():
        return ExitStatus.DONE
    return run_program(command_line(), prepare, arguments)


def command_line() -> CommandLine:
    line = CommandLine(
        program=PROGRAM,
        summary="prints the report of a training step on a mesh that need not be there: memory and\n"
        "FLOPs per core, and every collective with its bytes. Nothing is trained and no weight is made.",
        usage=f"{PROGRAM} --gin_file=NAME [--gin_param=BINDING ...] [--mesh_shape=...] [--layout=RULES]",
        examples=[
            f"{PROGRAM} --gin_file=lm_tiny.gin --mesh_shape='rows:32;cols:4'",
            f"{PROGRAM} --gin_file=lm_tiny.gin --gin_file=llama_2_70b.gin --mesh_shape='rows:64;cols:8' "
            "--gin_param='TextTask.length=4096' --gin_param='Training.batch_size=1024'",
        ],
        required=["gin_file"],
    )
    define_gin_flags(line.flags)
    define_recipe_flag(line.flags)
    define_layout_flags(line.flags)
    flags.DEFINE_integer(
        "processes",
        None,
        "Over how many processes the mesh is laid; overrides Training.num_processes. The report says which bytes go "
        "between them.",
        lower_bound=1,
        flag_values=line.flags,
    )
    return line


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads the configuration, and lowers the training step."""
    files = gin_files(values)
    read_configuration(files, [*values.gin_param, *mesh_bindings(values)])
    training = configured_training()
    options = training.mesh_options
    if values.processes is not None:
        options = dataclasses.replace(options, num_processes=values.processes)
    mesh_impl = mtf.PlanMeshImpl(training.mesh_shape, training.layout, options=options)
    program = training_step(training, mesh_impl)
    if not values.allow_unread_bindings:
        check_every_binding_is_read()
    return functools.partial(write_report, training, program)


def write_report(training: Training, program: mtf.Function) -> int:
    print(one_line(training, program))
    print(program.report())
    return ExitStatus.DONE


if __name__ == "__main__":
    run()
