"""The cores of a process, each of which calls the one function that is traced for all of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from meshtf.lowering.emit.core import TracedCore
from meshtf.lowering.emit.core_program import CoreProgram
from meshtf.lowering.emit.feeds_and_fetches import CoreResults, FedSlices
from meshtf.lowering.emit.function_calls import TracedFunction
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.emit.variable_slices import SlicesByHandle
from meshtf.mesh_impl.device_names import local_cores
from meshtf.mesh_impl.home_device import home_device
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.mesh_impl.spmd.spmd_collectives import DeviceMesh, SpmdCollectives
from meshtf.planning import core_positions
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.plan import Plan
from meshtf.tensorflow_private.traced_functions import NOT_INLINED


class Cores(Protocol):
    """The cores of a process, emitted into the function that starts them."""

    def results(self, feeds: Sequence[tf.Tensor]) -> CoreResults:
        """Emits the program for every core of this process.

        Args:
          feeds: whole arrays, in the order of `plan.feeds`.

        Returns:
          For each core, the slices of the fetches, and the index of the failed check or -1.
        """
        ...


class SeparateCores:
    """Cores that communicate by TensorFlow's collectives: GPUs and virtual CPUs, also of several processes.

    Args:
      plan: the plan that each core runs.
      mesh_impl: the mesh, which has devices.
      slices: the slices of this process, keyed by variable and core.

    Attributes:
      traces: the number of times that the program of a core has been traced.
    """

    def __init__(self, plan: Plan, mesh_impl: MeshImpl, slices: Mapping[str, Mapping[int, tf.Variable]]) -> None:
        self._plan = plan
        self._slices = slices
        self._devices = {core: mesh_impl.devices[core] for core in local_cores(mesh_impl.devices)}
        self._facts = PlanFacts.of(plan, writes_in_place=True)
        self._collectives = spmd_collectives(plan, mesh_impl, [c.step for c in plan.collectives])
        self.traces = 0

    @functools.cached_property
    def function(self) -> TracedFunction:
        """The function that every core calls with its coordinates, its tokens, its feeds and its variables."""
        plan = self._plan
        signature = [tf.TensorSpec([plan.mesh_shape.ndims], tf.int32), *self._collectives.signature()]
        signature += [tf.TensorSpec(f.output.slice_shape, f.output.dtype) for f in plan.feeds]
        signature += [tf.TensorSpec([], tf.resource) for _ in plan.variable_names]
        # If it were inlined, a collective in a loop would get a different name on each core, and would time out.
        traced = tf.function(self._core_program, autograph=False, experimental_attributes=NOT_INLINED)
        # Traced outside the function that calls it, so that all traces of that function share it.
        with tf.init_scope():
            return TracedFunction(traced.get_concrete_function(*signature))

    def results(self, feeds: Sequence[tf.Tensor]) -> CoreResults:
        fed = FedSlices(self._plan, feeds)
        results: CoreResults = {}
        for core, device in self._devices.items():
            with tf.device(home_device(device)):
                slices = fed.of(core, device)
                results[core] = self.function(
                    [
                        coordinates_of(core, self._plan),
                        *self._collectives.arguments(core),
                        *(slices[f.name] for f in self._plan.feeds),
                        *(self._slices[name][core].handle for name in self._plan.variable_names),
                    ]
                )
        return results

    def _core_program(self, coordinates: tf.Tensor, *arguments: tf.Tensor) -> list[tf.Tensor]:
        self.traces += 1
        plan, given = self._plan, iter(arguments)
        bound = self._collectives.bind([next(given) for _ in self._collectives.signature()])
        feeds = {f.name: next(given) for f in plan.feeds}
        handles = dict(zip(plan.variable_names, given, strict=True))
        is_cpu = all(tf.DeviceSpec.from_string(d).device_type == "CPU" for d in self._devices.values())
        core = TracedCore(plan, coordinates, is_cpu=is_cpu)
        return CoreProgram(self._facts, core, bound, SlicesByHandle(handles)).run(feeds)


def coordinates_of(core: int, plan: Plan) -> tf.Tensor:
    """Makes a core's position along each mesh axis, int32 [axes]."""
    coordinates = list(core_positions.coordinates(core, plan.mesh_shape).values())
    return tf.constant(coordinates, tf.int32, [len(coordinates)])


def spmd_collectives(plan: Plan, mesh_impl: MeshImpl, steps: Sequence[CollectiveStep]) -> SpmdCollectives:
    """TensorFlow's collectives for these steps of a plan."""
    axes = dict.fromkeys(s.axes for s in steps if s.destinations is None)
    permutations = dict.fromkeys(s.destinations for s in steps if s.destinations is not None)
    exchanging = [s.axes for s in steps if s.split_dim is not None]
    timeout = mesh_impl.options.collective_timeout_seconds
    mesh = DeviceMesh(plan.mesh_shape, mesh_impl.devices, timeout, plan.process_of_core)
    return SpmdCollectives(mesh, list(axes), list(permutations), exchanging)
