"""meshtf-plan: what a training would need and send on a mesh of any size, without devices."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Sequence

from absl import flags

import meshtf as mtf
from meshtf.bin._cluster import is_left_to_process_0
from meshtf.bin._configuration_flags import gin_files, mesh_bindings
from meshtf.bin._run_program import run_program
from meshtf.costs import Machine, load_machine, predict
from meshtf.train.configuration import check_every_binding_is_read, read_configuration
from meshtf.train.monitoring.description import one_line
from meshtf.train.step_programs import training_step
from meshtf.train.training import Training, configured_training
from meshtf_programs.command_lines.plan import PROGRAM, command_line
from meshtf_programs.exit_status import ExitStatus

__all__ = ["PROGRAM", "command_line", "main", "run"]


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Plans; returns the exit status."""
    if is_left_to_process_0():
        return ExitStatus.DONE
    return run_program(command_line(), prepare, arguments)


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads the configuration, and lowers the training step."""
    files = gin_files(values)
    read_configuration(files, [*values.gin_param, *mesh_bindings(values)])
    machine = None if values.machine is None else load_machine(values.machine)
    training = configured_training()
    options = training.mesh_options
    if values.processes is not None:
        options = dataclasses.replace(options, num_processes=values.processes)
    mesh_impl = mtf.PlanMeshImpl(training.mesh_shape, training.layout, options=options)
    program = training_step(training, mesh_impl)
    if not values.allow_unread_bindings:
        check_every_binding_is_read()
    return functools.partial(write_report, training, program, machine)


def write_report(training: Training, program: mtf.Function, machine: Machine | None = None) -> int:
    report = program.report()
    print(one_line(training, program))
    print(report)
    if machine is not None:
        print(predict(report, machine, tokens_per_step=training.tokens_per_step))
    return ExitStatus.DONE


if __name__ == "__main__":
    run()
