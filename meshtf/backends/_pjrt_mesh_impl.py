"""The common part of meshes on accelerators: XLA compiles one program, and PJRT runs it on every core."""

from __future__ import annotations

import abc
import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, cast

import tensorflow as tf

from meshtf.backends._running_on_pjrt import CoreMemory, running_on_pjrt
from meshtf.dimension import ShapeLike
from meshtf.layout import LayoutLike
from meshtf.lowering.emit.xla.hlo import hlo_of
from meshtf.lowering.emit.xla.pjrt_program import PjrtProgram
from meshtf.lowering.report.memory.what_fits import MemoryCount
from meshtf.mesh_impl.device_names import process_of
from meshtf.mesh_impl.mesh_options import MeshOptionKeywords, MeshOptions, checked_mesh
from meshtf.mesh_impl.pjrt.buffers import BufferSlices
from meshtf.mesh_impl.slices import Slices
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.planning.plan import Plan
from meshtf.planning.process_spans import ProcessOfCore

if TYPE_CHECKING:
    from meshtf.mesh_impl.pjrt.pjrt import Cores


class PjrtMeshImpl(abc.ABC):
    """A mesh of the cores of an accelerator. Subclasses define which accelerator, and find its cores."""

    def __init__(
        self, shape: ShapeLike, layout_rules: LayoutLike, options: MeshOptions | None, changes: MeshOptionKeywords
    ) -> None:
        self.shape, self.layout_rules, self.options = checked_mesh(shape, layout_rules, options, changes)
        self._hlo: weakref.WeakKeyDictionary[Plan, bytes] = weakref.WeakKeyDictionary()

    @abc.abstractmethod
    def _find_cores(self) -> Cores:
        """Finds the mesh's cores. Raises DeviceError if there are too few."""

    @property
    @abc.abstractmethod
    def float32_products(self) -> str:
        """The arithmetic of products of float32, in words."""

    @property
    @abc.abstractmethod
    def _memory_count(self) -> MemoryCount:
        """The way to count the memory that a program needs."""

    @property
    def size(self) -> int:
        """Number of cores."""
        return self.shape.size

    @property
    def ndims(self) -> int:
        """Number of mesh axes."""
        return self.shape.ndims

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the cores, by core number. Raises DeviceError if there are too few."""
        return self._cores.names

    @property
    def process_of_core(self) -> ProcessOfCore:
        """The process of each core. Empty if one process has all."""
        if collective_runtime().cluster is None:
            return ()
        processes = tuple(map(process_of, self.devices))
        return processes if len(set(processes)) > 1 else ()

    @property
    def compiles_programs(self) -> bool:
        """True, since XLA compiles each program as a whole, with its loops and their collectives."""
        return True

    @property
    def unrolls_layers(self) -> bool:
        """False: a loop over layers costs little on a TPU, and its compiler is slow for unrolled layers."""
        return False

    @property
    def kernel_platform(self) -> str:
        """Empty: programs use only XLA's operations."""
        return ""

    @property
    def steps_ahead(self) -> int:
        """2: the host starts a step while the cores still run the two steps before it."""
        return 2

    @property
    def takes_arrays(self) -> bool:
        """True: the runtime copies arrays to the cores."""
        return True

    @property
    def peak_bytes(self) -> int | None:
        """The most bytes that a core of this process has held at once; None if its runtime does not count them."""
        return self._cores.peak_bytes

    def check_runs(self, program: str) -> None:  # noqa: B027  # a member of the protocol, not a hook of this class
        """Does nothing, since every program runs on an accelerator. `devices` tells whether there is one."""

    def check_alike(self, program: str, texts: Callable[[], Mapping[str, str]]) -> None:
        """Raises ClusterError in every process of the mesh, if the texts of the program differ between processes."""
        cluster = collective_runtime().cluster
        if cluster is not None and self.process_of_core:
            cluster.check_alike(f'program "{program}"', texts(), self.options.collective_timeout_seconds)

    def zero_slices(self, name: str, slice_shape: Sequence[int], dtype: tf.DType) -> Slices:
        """Makes a new variable: a buffer on each core."""
        return BufferSlices(self._cores, slice_shape, dtype)

    def program(self, plan: Plan, slices: Mapping[str, Slices], *, runs_once: bool = False) -> PjrtProgram:
        """Returns the plan as one XLA program, which every core runs."""
        hlo = functools.partial(self.hlo, plan, plan.instructions[0].operation.graph.name if plan.instructions else "")
        return PjrtProgram(plan, self._cores, hlo, cast("Mapping[str, BufferSlices]", slices))

    def step(self, program: str, plan: Plan) -> AbstractContextManager[None]:
        """Returns a context for starting the program.

        Only one thread may start a program at a time, since the collectives of two would mix.
        """
        return running_on_pjrt(program, plan, self._memory)

    def hlo(self, plan: Plan, program: str) -> bytes:
        """Returns the program that every core runs. Raises CompilationError if XLA cannot compile an operation."""
        if plan not in self._hlo:
            self._hlo[plan] = hlo_of(plan, program, self.options.product_precision, self.kernel_platform)
        return self._hlo[plan]

    def _memory(self) -> CoreMemory:
        """The memory of this process's cores, as it is now."""
        return CoreMemory(self._memory_count, self._cores.memory_bytes, self._cores.used_bytes)

    @functools.cached_property
    def _cores(self) -> Cores:
        return self._find_cores()
