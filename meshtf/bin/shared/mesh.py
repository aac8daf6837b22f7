"""The mesh of a training, on the devices of `--backend`, over the processes of `--cluster`."""

from __future__ import annotations

import tensorflow as tf
from absl import flags

import meshtf as mtf
from meshtf.bin.shared.cluster import (
    check_configurations_are_alike,
    join_cluster,
    num_local_processors,
    wants_cluster,
)
from meshtf.errors import LayoutError
from meshtf.mesh_impl.host.freed_memory import pool_of_processors
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.mesh_impl.mesh_shape_rule import MeshShapeRule
from meshtf.mesh_impl.pjrt.kinds import GPU
from meshtf.mesh_impl.pjrt.of_this_process import accelerator
from meshtf.planning.layouts.rules_by_place import unused_rules
from meshtf.train.trainer import mesh_of
from meshtf.train.training import Training
from meshtf_programs.command_lines.shared.command_line import FlagError
from meshtf_programs.native_output import NATIVE_OUTPUT

_NO_VIRTUAL_CPUS = "--virtual={virtual} is only for --backend=gpu and --backend=tpu, but the backend is cpu"


def mesh_for(values: flags.FlagValues, training: Training) -> MeshImpl:
    """Makes the mesh that a training asks for, by --backend and --cluster. Call it before TensorFlow's first op.

    Raises:
      FlagError: for --virtual with --backend=cpu, whose cores are virtual anyway.
      DeviceError: if there are no such devices or too few, or the mesh does not fit a TPU's torus or the processes.
      ClusterError: if the other processes do not join, or the environment does not name them.
    """
    is_on_cpus, rule = values.backend == "cpu", MeshShapeRule.parse(training.mesh_shape)
    if values.virtual is not None and is_on_cpus:
        raise FlagError(_NO_VIRTUAL_CPUS.format(virtual=values.virtual))
    if wants_cluster(values):
        join_cluster(values.backend, rule, values.virtual)
        check_configurations_are_alike()
        if is_on_cpus:
            return mesh_of(training)
    return _mesh_on_cpus(rule, training) if is_on_cpus else _mesh_on_accelerator(values, rule, training)


def _mesh_on_cpus(rule: MeshShapeRule, training: Training) -> MeshImpl:
    shape = rule.shape(num_local_processors())
    with NATIVE_OUTPUT.kept_back(), pool_of_processors(is_wanted=training.mesh_options.keep_freed_memory):
        devices = mtf.virtual_cpus(shape.size)
        tf.config.list_logical_devices()  # this starts the devices
    return mesh_of(training, devices)


def _mesh_on_accelerator(values: flags.FlagValues, rule: MeshShapeRule, training: Training) -> MeshImpl:
    options = training.mesh_options
    if values.virtual is not None:
        (mtf.virtual_gpus if values.backend == "gpu" else mtf.virtual_tpu)(values.virtual)
    with NATIVE_OUTPUT.kept_back():
        tf.config.set_visible_devices([], "GPU")  # TensorFlow traces and feeds, and leaves them to PJRT
        tf.config.list_logical_devices()  # this starts TensorFlow
        if values.backend == "tpu":
            return mtf.TpuMeshImpl(training.mesh_shape, training.layout, options=options)
        shape = rule.shape(len(accelerator(GPU, 1, options.memory_fraction).cores) if rule.is_open else 0)
        return mtf.GpuMeshImpl(shape, training.layout, options=options)


def check_rules_are_used(program: mtf.Function) -> None:
    """Checks a layout that replaces the run's own, whose rules training has checked.

    Raises:
      LayoutError: if a rule is for a dimension that the program lacks.
    """
    for message in unused_rules(program.lowering.mesh_impl.layout_rules, program.graph.operations):
        raise LayoutError(message)
