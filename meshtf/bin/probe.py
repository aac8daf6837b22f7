"""meshtf-probe: measures this machine, and writes a file from which other programs predict times."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import tensorflow as tf
from absl import flags

from meshtf.bin.shared.output_file import check_can_be_written, check_is_no_device
from meshtf.bin.shared.run_program import run_program
from meshtf.costs import machine_text
from meshtf.errors import counted
from meshtf.files.replaced_file import replaced_file
from meshtf.gpu_probe import GpuProbeSizes, probe_gpus
from meshtf.mesh_impl.pjrt.kinds import GPU
from meshtf.mesh_impl.pjrt.of_this_process import accelerator
from meshtf.mesh_impl.pjrt.virtual_cores import virtual_gpus
from meshtf.mesh_impl.virtual_cpus import virtual_cpus
from meshtf.probe import ProbeSizes, probe
from meshtf_programs.command_lines.probe import PROGRAM, command_line
from meshtf_programs.command_lines.shared.command_line import FlagError
from meshtf_programs.exit_status import ExitStatus
from meshtf_programs.native_output import NATIVE_OUTPUT
from meshtf_programs.user_paths import user_path

__all__ = ["PROGRAM", "command_line", "main", "run"]


def run() -> None:
    """The console script."""
    sys.exit(main(sys.argv))


def main(arguments: Sequence[str]) -> int:
    """Measures, and returns the exit status."""
    return run_program(command_line(), prepare, arguments, has_mesh=False)


def prepare(values: flags.FlagValues) -> Callable[[], int]:
    """Checks the flags, before anything is measured."""
    path = user_path(values.out)
    if path.suffix != ".toml":
        raise FlagError(f"--out={values.out}: the name of a machine file must end in .toml")
    if not path.parent.is_dir():
        raise FlagError(f"--out={values.out}: there is no folder {path.parent}")
    check_is_no_device(values.out, "--out")
    check_can_be_written(values.out, "--out")
    if values.backend == "gpu":
        if values["cores"].present:
            raise FlagError(
                f"--cores={values.cores} is for virtual CPUs; give --virtual=N, or none for this machine's GPUs"
            )
        open_gpus(values.virtual)
        return functools.partial(write_gpu_probe, path)
    if values.virtual is not None:
        raise FlagError(f"--virtual={values.virtual}: virtual GPUs are measured with --backend=gpu")
    if values.cores % 2:
        raise FlagError(f"--cores={values.cores}: it must be an even number, as in --cores={values.cores + 1}")
    virtual_cpus(values.cores)
    return functools.partial(write_probe, path, ProbeSizes(cores=values.cores))


def write_probe(path: Path, sizes: ProbeSizes) -> int:
    machine = probe(sizes, on_step=lambda what: print(f"measuring {what}", flush=True))
    with replaced_file(path) as file:
        file.write(machine_text(machine).encode())
    print(f"{path}: {machine.peak_flops['float32'] / 1e9:.3g} GFLOP/s in float32, ", end="")
    print(f"{machine.memory_bandwidth / 1e9:.3g} GB/s, {counted(machine.processors, 'processor')}")
    print(machine.source)
    return ExitStatus.DONE


def open_gpus(virtual: int | None) -> None:
    """Opens this machine's GPUs, or so many virtual ones. Raises DeviceError if there is none."""
    if virtual is not None:
        virtual_gpus(virtual)
    with NATIVE_OUTPUT.kept_back():
        tf.config.set_visible_devices([], "GPU")  # TensorFlow traces and feeds, and leaves them to PJRT
        tf.config.list_logical_devices()  # this starts TensorFlow
    accelerator(GPU, 1)


def write_gpu_probe(path: Path, sizes: GpuProbeSizes | None = None) -> int:
    """Measures the GPUs that are open, and writes the file."""
    machine = probe_gpus(sizes or GpuProbeSizes(), on_step=lambda what: print(f"measuring {what}", flush=True))
    with replaced_file(path) as file:
        file.write(machine_text(machine).encode())
    print(f"{path}: {machine.peak_flops['bfloat16'] / 1e12:.3g} TFLOP/s in bfloat16, ", end="")
    print(f"{machine.memory_bandwidth / 1e9:.3g} GB/s")
    print(machine.source)
    return ExitStatus.DONE


if __name__ == "__main__":
    run()
