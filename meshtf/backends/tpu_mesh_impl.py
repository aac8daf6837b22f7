"""A mesh laid onto the torus of a TPU, whose cores run one program compiled by XLA."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Unpack, final

import tensorflow as tf

from meshtf.backends._running_step import running_step
from meshtf.call_sites import says_where
from meshtf.dimension import Shape, ShapeLike
from meshtf.errors import DeviceError
from meshtf.layout import LayoutLike, LayoutRules
from meshtf.lowering.emit.tpu_program import TpuProgram
from meshtf.lowering.emit.xla_hlo import hlo_of
from meshtf.mesh_impl.mesh_impl import Program, Slices, checked_mesh
from meshtf.mesh_impl.mesh_options import MeshOptionKeywords, MeshOptions
from meshtf.mesh_impl.tpu.torus import Torus
from meshtf.mesh_impl.tpu.tpu_system import LOCAL, TpuSystem, tpu_system
from meshtf.mesh_impl.zero_slices import zero_slices
from meshtf.planning.plan import Plan
from meshtf.planning.process_spans import ProcessOfCore

_ANOTHER_TORUS = """\
mesh [{shape}] was laid onto {given}, and TPU "{tpu}" has {found}; leave physical_torus out, or give the TPU's own."""


@final
@dataclasses.dataclass(frozen=True, init=False)
class TpuMeshImpl:
    """A mesh of TPU cores, for `mtf.function` and `mtf.Lowering`.

    When a program is lowered for it, it is compiled to HLO, which needs no TPU; what XLA cannot compile is a
    CompilationError then. Running it needs a TPU.

    Never run on one, for lack of it. What was verified without: docs/tpu.md.

    Attributes:
      shape: the mesh's named shape.
      layout_rules: which dimension is split over which mesh axes.
      options: beside these.
      torus: the chips, and the cores on each; given as
        physical_torus: "4x4" or the like.
      core_positions: by core number, its chip's coordinates on the torus and its number on the chip. Neighbours along
        a mesh axis are on one chip, or on chips with a link between them.
      tpu: the name of the TPU.

    Examples:
      >>> cores = mtf.TpuMeshImpl("data:4;model:2", "batch:data;d_ff:model", physical_torus="2x2")
      >>> cores.shape
      Shape[data:4 model:2]
    """

    shape: Shape
    layout_rules: LayoutRules
    options: MeshOptions
    torus: Torus
    core_positions: tuple[tuple[int, ...], ...]
    tpu: str

    @says_where
    def __init__(
        self,
        shape: ShapeLike,
        layout_rules: LayoutLike,
        *,
        physical_torus: str | Sequence[int] | Torus | None = None,
        tpu: str = LOCAL,
        options: MeshOptions | None = None,
        **changes: Unpack[MeshOptionKeywords],
    ) -> None:
        """`physical_torus`: "4x4" or "4x4x8", in chips with two cores on each, or a `Torus`, whose chips may have one;
        by default that of the TPU, which must then be there. `tpu`: "local", or a name or address that
        `tf.distribute.cluster_resolver.TPUClusterResolver` takes. Every field of `mtf.MeshOptions` is a keyword, too;
        keywords replace fields of `options`.

        Raises:
          DeviceError: the mesh does not fit the torus (the message lists what does), or there is no TPU.
          LayoutError: for a rule with an axis that the mesh does not have.
          UsageError: for an option with a value that it cannot have.
        """
        converted, rules, chosen = checked_mesh(shape, layout_rules, options, changes)
        object.__setattr__(self, "shape", converted)
        object.__setattr__(self, "layout_rules", rules)
        object.__setattr__(self, "options", chosen)
        torus = tpu_system(tpu).torus if physical_torus is None else Torus.of(physical_torus)
        object.__setattr__(self, "tpu", tpu)
        object.__setattr__(self, "torus", torus)
        object.__setattr__(self, "core_positions", torus.place(self.shape))

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
        """Names of the TPU's cores, by core number. DeviceError where there is no TPU, or one of another torus."""
        return self._system().devices(self.core_positions)

    @property
    def device_assignment(self) -> tf.tpu.experimental.DeviceAssignment:
        """Puts replica number c of a program at the place of core c. DeviceError as for `devices`."""
        return self._system().device_assignment(self.core_positions)

    @property
    def process_of_core(self) -> ProcessOfCore:
        """Empty: this process hands all cores their programs."""
        return ()

    def check_runs(self, program: str) -> None:
        """Every program runs on a TPU; `devices` says whether there is one."""

    def check_alike(self, program: str, texts: Callable[[], Mapping[str, str]]) -> None:
        """Nothing: one process hands all cores their programs."""

    def zero_slices(self, name: str, slice_shape: Sequence[int], dtype: tf.DType) -> dict[int, tf.Variable]:
        """A new variable: a slice on each core."""
        return zero_slices(self.devices, name, slice_shape, dtype)

    def program(self, plan: Plan, slices: Mapping[str, Slices], *, runs_once: bool = False) -> Program:
        """The plan as one XLA program, a replica of which runs on every core."""
        return TpuProgram(plan, self.device_assignment, slices)

    def step(self, program: str, plan: Plan) -> AbstractContextManager[None]:
        """Held while the program runs: one at a time in a process."""
        return running_step(program, plan)

    def hlo(self, plan: Plan, program: str) -> bytes:
        """What every core runs. CompilationError where XLA cannot compile an operation."""
        return hlo_of(plan, program)

    @says_where
    def _system(self) -> TpuSystem:
        system = tpu_system(self.tpu)
        if system.torus != self.torus:
            raise DeviceError(
                _ANOTHER_TORUS.format(shape=self.shape, given=self.torus, tpu=self.tpu, found=system.torus)
            )
        return system
