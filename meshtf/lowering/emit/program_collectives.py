"""How the cores of a program communicate: in the memory that they share, by TensorFlow's collectives, or both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from meshtf.mesh_impl.device_names import local_cores
from meshtf.mesh_impl.home_device import are_virtual_cpus
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.mesh_impl.spmd.shared_memory_collectives import CollectivesForAll, SharedMemoryCollectives
from meshtf.mesh_impl.spmd.spmd_collectives import DeviceMesh, SpmdCollectives
from meshtf.mesh_impl.spmd.staged_collectives import StagedCollectives
from meshtf.planning.collectives.collective_step import CollectiveStep
from meshtf.planning.plan import Plan
from meshtf.planning.process_spans import crossing_axes


class ProgramCollectives:
    """Of one program.

    Attributes:
      share_memory: whether cores of one process hand one another their slices where they are, as virtual CPUs do. Then
        each collective is for all cores of the process at once.
      of_a_core: what a core emits by itself: none, where memory is shared.
    """

    def __init__(self, plan: Plan, mesh_impl: MeshImpl) -> None:
        self._plan = plan
        self._mesh_impl = mesh_impl
        self.share_memory = mesh_impl.options.share_memory and are_virtual_cpus(mesh_impl.devices)
        steps = [c.step for c in plan.collectives]
        self.of_a_core = self._by_runtime([] if self.share_memory else steps)
        self._between_processes = self._by_runtime(filter(self._crosses, steps) if self.share_memory else [])

    def for_all(self) -> CollectivesForAll:
        """Of all cores that share the memory, in the function that is being traced, outside of its loops."""
        mesh_shape, process_of_core = self._plan.mesh_shape, self._plan.process_of_core
        if not process_of_core:
            return SharedMemoryCollectives(mesh_shape)
        between = self._between_processes
        bound = {core: between.bind(between.arguments(core)) for core in local_cores(self._mesh_impl.devices)}
        return StagedCollectives(mesh_shape, process_of_core, bound)

    def _crosses(self, step: CollectiveStep) -> bool:
        axes = step.axes if step.destinations is None else self._plan.mesh_shape.dimension_names
        return bool(crossing_axes(axes, self._plan.mesh_shape, self._plan.process_of_core))

    def _by_runtime(self, steps: Iterable[CollectiveStep]) -> SpmdCollectives:
        mesh_impl, declared = self._mesh_impl, list(steps)
        axes = dict.fromkeys(s.axes for s in declared if s.destinations is None)
        permutations = dict.fromkeys(s.destinations for s in declared if s.destinations is not None)
        exchanging: Sequence[tuple[str, ...]] = [s.axes for s in declared if s.split_dim is not None]
        mesh = DeviceMesh(
            self._plan.mesh_shape,
            mesh_impl.devices,
            mesh_impl.options.collective_timeout_seconds,
            self._plan.process_of_core,
        )
        return SpmdCollectives(mesh, list(axes), list(permutations), exchanging)
