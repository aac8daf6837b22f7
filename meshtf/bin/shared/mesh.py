"""The mesh of a training, on the devices of `--backend`, over the processes of `--cluster`."""

from __future__ import annotations

import tensorflow as tf
from absl import flags

import meshtf as mtf
from meshtf.bin.shared.cluster import check_configurations_are_alike, join_cluster, num_local_devices, wants_cluster
from meshtf.errors import DeviceError, LayoutError, counted
from meshtf.mesh_impl.freed_memory import pool_of_processors
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.mesh_impl.mesh_shape_rule import MeshShapeRule
from meshtf.planning.layouts.rules_by_place import unused_rules
from meshtf.train.trainer import mesh_of
from meshtf.train.training import Training
from meshtf_programs.command_lines.command_line import FlagError
from meshtf_programs.native_output import NATIVE_OUTPUT

_TOO_FEW_GPUS = """\
--backend=gpu: the mesh [{shape}] has {cores}, and TensorFlow sees {gpus}.
Give a smaller --mesh_shape, or --backend=cpu."""


def mesh_for(values: flags.FlagValues, training: Training) -> MeshImpl:
    """Makes the mesh that a training asks for, by --backend and --cluster. Call it before TensorFlow's first op.

    Raises:
      FlagError: for --virtual without --backend=tpu.
      DeviceError: if there are no such devices or too few, or the mesh does not fit a TPU's torus or the processes.
      ClusterError: if the others do not come, or the environment does not name them.
    """
    backend = values.backend
    if values.virtual is not None and backend != "tpu":
        raise FlagError(f"--virtual={values.virtual} is of --backend=tpu, and the backend is {backend}")
    if wants_cluster(values):
        join_cluster(backend, MeshShapeRule.parse(training.mesh_shape), values.virtual)
        check_configurations_are_alike()
        if backend != "tpu":
            return mesh_of(training)
    if backend == "tpu":
        if values.virtual is not None:
            mtf.virtual_tpu(values.virtual)
        with NATIVE_OUTPUT.kept_back():
            tf.config.list_logical_devices()  # this starts TensorFlow, which feeds the programs
        return mtf.TpuMeshImpl(training.mesh_shape, training.layout, options=training.mesh_options)
    shape = MeshShapeRule.parse(training.mesh_shape).shape(num_local_devices(backend))
    with NATIVE_OUTPUT.kept_back(), pool_of_processors(is_wanted=training.mesh_options.keep_freed_memory):
        devices = mtf.virtual_cpus(shape.size) if backend == "cpu" else _gpus(shape)
        tf.config.list_logical_devices()  # this starts the devices
    return mesh_of(training, devices)


def check_rules_are_used(program: mtf.Function) -> None:
    """Checks a layout that replaces the run's own, whose rules training has checked.

    Raises:
      LayoutError: if a rule is for a dimension that the program lacks.
    """
    for message in unused_rules(program.lowering.mesh_impl.layout_rules, program.graph.operations):
        raise LayoutError(message)


def _gpus(shape: mtf.Shape) -> tuple[str, ...]:
    found = len(tf.config.list_physical_devices("GPU"))
    if found < shape.size:
        gpus = "no GPU" if not found else f"{found} GPU{'s' if found > 1 else ''}"
        raise DeviceError(_TOO_FEW_GPUS.format(shape=shape, cores=counted(shape.size, "core"), gpus=gpus))
    return tuple(f"/device:GPU:{i}" for i in range(shape.size))
