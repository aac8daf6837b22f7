"""A mesh laid onto the torus of a TPU, whose cores run one program compiled by XLA."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Unpack, cast, final

import tensorflow as tf

from meshtf.backends._running_on_pjrt import running_on_pjrt
from meshtf.call_sites import says_where
from meshtf.dimension import ShapeLike
from meshtf.errors import DeviceError
from meshtf.layout import LayoutLike
from meshtf.lowering.emit.xla.hlo import hlo_of
from meshtf.lowering.emit.xla.pjrt_program import PjrtProgram
from meshtf.mesh_impl.device_names import process_of
from meshtf.mesh_impl.mesh_impl import checked_mesh
from meshtf.mesh_impl.mesh_options import MeshOptionKeywords, MeshOptions
from meshtf.mesh_impl.slices import Slices
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.mesh_impl.tpu.buffers import BufferSlices
from meshtf.mesh_impl.tpu.torus import Torus
from meshtf.mesh_impl.tpu.tpu_system import tpu_system
from meshtf.planning.plan import Plan
from meshtf.planning.process_spans import ProcessOfCore

if TYPE_CHECKING:
    from meshtf.mesh_impl.tpu.pjrt import Cores

_ANOTHER_TORUS = """\
mesh [{shape}] was laid onto {given}, and the TPU has {found}; leave physical_torus out, or give the TPU's own."""


@final
class TpuMeshImpl:
    """A mesh of TPU cores, for `mtf.function` and `mtf.Lowering`.

    Lowering a program for it compiles it to HLO, which needs no TPU. If XLA cannot compile it, that raises
    CompilationError. Running it needs a TPU, or a virtual one (`mtf.virtual_tpu`). Variables are buffers on the cores,
    which steps update in place.

    It has never run on a real TPU, since none was available. The TPU's own compiler has compiled every operation.
    Virtual TPUs, which use the runtime that TPUs have, have run the programs.

    Args:
      physical_torus: "4x4" or "4x4x8", in chips with two cores on each, or a `Torus`, whose chips may have one core.
        The default is the torus of the TPU, which must then be there.

    Attributes:
      shape: the mesh's named shape.
      layout_rules: which dimension is split over which mesh axes.
      options: all other options of the mesh.
      torus: the chips, and the cores on each. None on a virtual TPU, unless physical_torus gave it.
      core_positions: by core number, its chip's coordinates on the torus and its number on the chip. Neighbours along a
        mesh axis are on one chip, or on chips with a link between them. None if there is no torus.

    Examples:
      >>> cores = mtf.TpuMeshImpl("data:4;model:2", "batch:data;d_ff:model", physical_torus="2x2")
      >>> cores.shape
      Shape[data:4 model:2]
    """

    @says_where
    def __init__(
        self,
        shape: ShapeLike,
        layout_rules: LayoutLike,
        *,
        physical_torus: str | Sequence[int] | Torus | None = None,
        options: MeshOptions | None = None,
        **changes: Unpack[MeshOptionKeywords],
    ) -> None:
        """Makes the mesh. Every field of `mtf.MeshOptions` is a keyword, and replaces the same field of `options`.

        Raises:
          ClusterError: if the process has joined others after its TPU was there.
          DeviceError: if the mesh does not fit the torus (the message lists what does), or if there is no TPU.
          LayoutError: if a rule has an axis that the mesh does not have.
          UsageError: if an option cannot have its value.
        """
        self.shape, self.layout_rules, self.options = checked_mesh(shape, layout_rules, options, changes)
        given = None if physical_torus is None else Torus.of(physical_torus)
        self.torus = given or tpu_system(self.size).torus
        self.core_positions = self.torus and self.torus.place(self.shape)
        if given is None:
            _ = self._cores  # raises an error if there are too few
        self._hlo: weakref.WeakKeyDictionary[Plan, bytes] = weakref.WeakKeyDictionary()

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
        """Names of the TPU's cores, by core number. Raises DeviceError if there is no TPU, or one of another torus."""
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
    def steps_ahead(self) -> int:
        """2: the host starts a step while the cores are in the two before it."""
        return 2

    def check_runs(self, program: str) -> None:
        """Does nothing, since every program runs on a TPU. `devices` says whether there is one."""

    def check_alike(self, program: str, texts: Callable[[], Mapping[str, str]]) -> None:
        """Raises ClusterError, in every process of the mesh, if their texts of the program differ."""
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
        """Returns a context for starting the program. One thread at a time starts it, since the collectives of
        two would mix.
        """
        return running_on_pjrt(program, plan)

    def hlo(self, plan: Plan, program: str) -> bytes:
        """Returns the program that every core runs. Raises CompilationError if XLA cannot compile an operation."""
        if plan not in self._hlo:
            self._hlo[plan] = hlo_of(plan, program)
        return self._hlo[plan]

    @functools.cached_property
    def _cores(self) -> Cores:
        system = tpu_system(self.size)
        if system.torus not in (None, self.torus):
            raise DeviceError(_ANOTHER_TORUS.format(shape=self.shape, given=self.torus, found=system.torus))
        return system.on(self.shape, self.core_positions, self.options.axes_over_processes)

    def __repr__(self) -> str:
        return f'TpuMeshImpl("{self.shape}", "{self.layout_rules}", physical_torus={self.torus})'
