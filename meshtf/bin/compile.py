"""meshtf-compile: what the TPU's own compiler makes of a training step, for a TPU that need not be there."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import tensorflow as tf
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
from meshtf.bin._waiting import waiting
from meshtf.mesh_impl.tpu.topology import TpuTopology
from meshtf.train.configuration import check_every_binding_is_read, read_configuration
from meshtf.train.step_programs import training_step
from meshtf.train.training import configured_training
from meshtf_programs.native_output import NATIVE_OUTPUT

PROGRAM = "meshtf-compile"
CACHE = Path("~/.cache/meshtf/compile")


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Compiles; returns the exit status."""
    if is_left_to_process_0():
        return ExitStatus.DONE
    return run_program(command_line(), prepare, arguments)


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
    flags.DEFINE_string(
        "hlo_file", None, "Where to write the program as it was optimized and scheduled, as text.", flag_values=values
    )
    flags.DEFINE_string(
        "cache_dir",
        str(CACHE),
        "Where answers of the compiler are kept, by all that they depend on; it is then asked once.",
        flag_values=values,
    )


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Reads the configuration, and lowers the training step."""
    read_configuration(gin_files(values), [*values.gin_param, *mesh_bindings(values)])
    training = configured_training()
    topology = TpuTopology.of(values.topology)
    topology.places(mtf.convert_to_shape(training.mesh_shape))
    mesh_impl = mtf.PlanMeshImpl(training.mesh_shape, training.layout, options=training.mesh_options)
    with NATIVE_OUTPUT.kept_back():
        tf.config.list_logical_devices()  # starts them, for the HLO
    program = training_step(training, mesh_impl)
    if not values.allow_unread_bindings:
        check_every_binding_is_read()
    return functools.partial(compile_step, program, topology, values)


def compile_step(program: mtf.Function, topology: TpuTopology, values: flags.FlagValues) -> int:
    with waiting(f"compiling for {topology}") as on_wait:
        compilation = program.compile(topology, cache_dir=Path(values.cache_dir).expanduser(), on_wait=on_wait)
    if values.hlo_file is not None:
        Path(values.hlo_file).write_text(compilation.hlo)
    print(json.dumps(compilation.to_dict(), indent=2) if values.json else compilation)
    return ExitStatus.DONE


if __name__ == "__main__":
    run()
