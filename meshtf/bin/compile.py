"""meshtf-compile: compiles a training step with the TPU's own compiler. No TPU is needed."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence

import tensorflow as tf
from absl import flags

import meshtf as mtf
from meshtf.bin.shared.configuration_flags import gin_files, mesh_bindings
from meshtf.bin.shared.output_file import check_can_be_written, check_overwrites_no_configuration
from meshtf.bin.shared.run_program import run_program
from meshtf.bin.shared.waiting import waiting
from meshtf.mesh_impl.tpu.topology import TpuTopology
from meshtf.train.configuration import check_every_binding_is_read, read_configuration
from meshtf.train.step_programs import training_step
from meshtf.train.training import configured_training
from meshtf_programs.command_lines.compile import PROGRAM, command_line
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.native_output import NATIVE_OUTPUT
from meshtf_programs.strict_json import json_text
from meshtf_programs.user_paths import user_path

__all__ = ["PROGRAM", "command_line", "main", "run"]


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Compiles, and returns the exit status."""
    return run_program(command_line(), prepare, arguments, has_mesh=False)


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads the configuration, and lowers the training step."""
    check_can_be_written(values.hlo_file, "--hlo_file")
    files = gin_files(values)
    read_configuration(files, [*values.gin_param, *mesh_bindings(values)])
    check_overwrites_no_configuration(values.hlo_file, given="--hlo_file")
    training = configured_training()
    topology = TpuTopology.of(values.topology)
    topology.places(mtf.convert_to_shape(training.mesh_shape))
    mesh_impl = mtf.PlanMeshImpl(training.mesh_shape, training.layout, options=training.mesh_options)
    with NATIVE_OUTPUT.kept_back():
        tf.config.list_logical_devices()  # this starts the devices, which the HLO needs
    program = training_step(training, mesh_impl)
    if not values.allow_unread_bindings:
        check_every_binding_is_read()
    return functools.partial(compile_step, program, topology, values)


def compile_step(program: mtf.Function, topology: TpuTopology, values: flags.FlagValues) -> int:
    with waiting(f"compiling for {topology}") as on_wait:
        compilation = program.compile(topology, cache_dir=values.cache_dir, on_wait=on_wait)
    if values.hlo_file is not None:
        user_path(values.hlo_file).write_text(compilation.hlo)
    print(json_text(compilation.to_dict(), indent=2) if values.json else compilation)
    return ExitStatus.DONE


if __name__ == "__main__":
    run()
