"""A program as one of several processes: joining the others, and who of them speaks."""

from __future__ import annotations

import os
import sys

import tensorflow as tf
from absl import flags

import meshtf as mtf
from meshtf.cluster.environments import addresses_from
from meshtf.errors import ClusterError, DeviceError
from meshtf_programs.launching.launched import MESHTF_LAUNCH, Launched
from meshtf_programs.native_output import NATIVE_OUTPUT

_UNEVEN = """\
the mesh [{shape}] has {cores} cores, and there are {processes} processes, which take equal parts of it.
Make the number of cores a multiple of the number of processes."""

_NOT_ITS_CORES = """\
the mesh [{shape}] has {cores} cores, and {processes} processes with --cores_per_process={each} have {total}.
Give --cores_per_process={fitting}, or another --mesh_shape."""


def wants_cluster(values: flags.FlagValues) -> bool:
    """Whether meshtf-launch started this process, or --cluster was given."""
    return values.cluster or MESHTF_LAUNCH in os.environ


def is_left_to_process_0() -> bool:
    """Whether meshtf-launch started this process beside another that does the same: of a program without a mesh."""
    return MESHTF_LAUNCH in os.environ and addresses_from(os.environ).process_index > 0


def join_cluster(backend: str, shape: mtf.Shape) -> None:
    """Joins the others, each with its part of the cores of a mesh, and says so.

    Of what the program prints from then on process 0's is shown, the others' is not. Errors of all are.

    Raises:
      DeviceError: the mesh cannot be divided among the processes.
      ClusterError: the environment does not say who they are, they do not come, or they have TPUs.
    """
    if backend == "tpu":
        raise ClusterError("--backend=tpu: one process has all cores of a TPU; start it once, without a cluster")
    processes = addresses_from(os.environ)
    each = _cores_per_process(shape, processes.num_processes)
    if backend == "cpu":
        with NATIVE_OUTPUT.kept_back():
            tf.config.set_visible_devices([], "GPU")
            mtf.virtual_cpus(each)
    cluster = mtf.initialize_cluster()
    if cluster.is_leader:
        addresses = ", ".join(cluster.addresses)
        print(f"cluster:       {cluster.num_processes} processes, {each} cores each ({addresses})", flush=True)
    else:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # for as long as the process runs


def _cores_per_process(shape: mtf.Shape, num_processes: int) -> int:
    fitting, rest = divmod(shape.size, num_processes)
    if rest:
        raise DeviceError(_UNEVEN.format(shape=shape, cores=shape.size, processes=num_processes))
    text = os.environ.get(MESHTF_LAUNCH)
    each = None if text is None else Launched.from_text(text).cores_per_process
    if each is not None and each != fitting:
        total = each * num_processes
        raise DeviceError(
            _NOT_ITS_CORES.format(
                shape=shape, cores=shape.size, processes=num_processes, each=each, total=total, fitting=fitting
            )
        )
    return fitting
