"""A program as one of several processes: it joins the others, and only one of them prints."""

from __future__ import annotations

import os
import sys

import gin
import tensorflow as tf
from absl import flags

import meshtf as mtf
from meshtf.cluster.environments import addresses_from
from meshtf.cluster.process_addresses import ProcessAddresses
from meshtf.errors import DeviceError, counted
from meshtf.mesh_impl.mesh_shape_rule import MeshShapeRule
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.mesh_impl.virtual_cpus import num_processors
from meshtf.train.runs.resuming import bindings_of
from meshtf_programs.launching.launched import MESHTF_LAUNCH, Launched
from meshtf_programs.native_output import NATIVE_OUTPUT

_UNEVEN = """\
the mesh [{shape}] has {cores}, and there are {processes} processes, which take equal parts of it.
Make the number of cores a multiple of the number of processes."""

_NOT_ITS_CORES = """\
the mesh [{shape}] has {cores}, and {processes} processes with --cores_per_process={each} have {total}.
Give --cores_per_process={fitting}, or another --mesh_shape."""


_NO_LINE_IS_LONGER = 1_000_000


def wants_cluster(values: flags.FlagValues) -> bool:
    """Tells whether meshtf-launch started this process, or --cluster was given."""
    return values.cluster or MESHTF_LAUNCH in os.environ


def is_left_to_process_0() -> bool:
    """Tells whether meshtf-launch started this process beside process 0, for a program without a mesh.

    All processes would do the same work, so process 0 does it alone.
    """
    return MESHTF_LAUNCH in os.environ and addresses_from(os.environ).process_index > 0


def num_local_processors(processes_here: int = 1) -> int:
    """Returns the number of virtual CPUs of each process, if a mesh uses all processors of this machine and
    `processes_here` processes share them.
    """
    return max(1, num_processors() // processes_here)


def join_cluster(backend: str, rule: MeshShapeRule, virtual: int | None = None) -> None:
    """Joins the other processes of a cluster. Each has its part of the cores of a mesh.

    Afterwards only process 0 writes to standard output. All processes show their errors.

    `virtual`: how many virtual GPUs, or virtual cores of a TPU, each process has.

    Raises:
      DeviceError: if the mesh cannot be divided among the processes.
      ClusterError: if the environment does not name the processes, or if some do not join.
    """
    processes = addresses_from(os.environ)
    each = virtual
    if backend == "cpu":
        each = _cores_per_process(rule, processes)
        with NATIVE_OUTPUT.kept_back():
            tf.config.set_visible_devices([], "GPU")
            mtf.virtual_cpus(each)
    cluster = mtf.initialize_cluster()
    if cluster.is_leader:
        addresses, cores = (
            ", ".join(cluster.addresses),
            "" if each is None else f", {counted(each, 'core each', 'cores each')}",
        )
        print(
            f"cluster:       {counted(cluster.num_processes, 'process', 'processes')}{cores} ({addresses})", flush=True
        )
    else:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # it stays open as long as the process runs


def check_configurations_are_alike() -> None:
    """Raises ClusterError, in every process, if their gin bindings differ. The message has the first difference."""
    cluster = collective_runtime().cluster
    if cluster is not None:
        bindings = bindings_of(gin.config_str(max_line_length=_NO_LINE_IS_LONGER))
        cluster.check_alike("the configuration", {f"binding {name}": value for name, value in sorted(bindings.items())})


def _cores_per_process(rule: MeshShapeRule, processes: ProcessAddresses) -> int:
    number, text = processes.num_processes, os.environ.get(MESHTF_LAUNCH)
    told = None if text is None else Launched.from_text(text).cores_per_process
    shape = rule.shape_over(number, told or num_local_processors(processes.num_on_this_host))
    each, rest = divmod(shape.size, number)
    if rest:
        raise DeviceError(_UNEVEN.format(shape=shape, cores=counted(shape.size, "core"), processes=number))
    if told is not None and told != each:
        raise DeviceError(
            _NOT_ITS_CORES.format(
                shape=shape,
                cores=counted(shape.size, "core"),
                processes=number,
                each=told,
                total=told * number,
                fitting=each,
            )
        )
    return each
