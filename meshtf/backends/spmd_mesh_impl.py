"""A mesh of logical devices, on which one per-core program runs with TensorFlow's collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Unpack, final

import tensorflow as tf

from meshtf.backends._running_step import running_step
from meshtf.call_sites import says_where
from meshtf.dimension import ShapeLike
from meshtf.layout import LayoutLike
from meshtf.lowering.emit.emission import EmittedProgram
from meshtf.mesh_impl.device_names import checked_devices, default_devices
from meshtf.mesh_impl.mesh_impl import Program, checked_mesh
from meshtf.mesh_impl.mesh_options import MeshOptionKeywords, MeshOptions
from meshtf.mesh_impl.zero_slices import zero_slices
from meshtf.planning.plan import Plan


@final
class SpmdMeshImpl:
    """A mesh shape on devices, and the layout of tensors over it.

    Attributes:
      shape: the mesh's named shape.
      layout_rules: which dimension is split over which mesh axes.
      options: beside these.
      devices: names of the devices, by core number (row-major over the mesh's axes).

    Examples:
      >>> mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows;hidden:cols")
      >>> mesh_impl.shape, len(mesh_impl.devices)
      (Shape[rows:2 cols:2], 4)
    """

    @says_where
    def __init__(
        self,
        shape: ShapeLike,
        layout_rules: LayoutLike,
        devices: Sequence[str] | None = None,
        *,
        options: MeshOptions | None = None,
        **changes: Unpack[MeshOptionKeywords],
    ) -> None:
        """`devices` are by default the first GPUs if there are enough of them, else the first CPUs. Every field of
        `mtf.MeshOptions` is a keyword, as in `parameter_layout="hidden:rows"`; keywords replace fields of `options`.

        Raises:
          DeviceError: for a device that does not exist or stands twice, or a number other than that of cores.
          LayoutError: for a rule with an axis that the mesh does not have.
          UsageError: for an option with a value that it cannot have.
        """
        self.shape, self.layout_rules, self.options = checked_mesh(shape, layout_rules, options, changes)
        self.devices = default_devices(self.shape) if devices is None else checked_devices(self.shape, devices)

    @property
    def size(self) -> int:
        """Number of cores."""
        return self.shape.size

    @property
    def ndims(self) -> int:
        """Number of mesh axes."""
        return self.shape.ndims

    def check_runs(self, program: str) -> None:
        """Every program runs here."""

    def zero_slices(self, name: str, slice_shape: Sequence[int], dtype: tf.DType) -> tuple[tf.Variable, ...]:
        """A new variable: for each core a slice on its device."""
        return zero_slices(self.devices, name, slice_shape, dtype)

    def program(self, plan: Plan, slices: Mapping[str, Sequence[tf.Variable]], *, runs_once: bool = False) -> Program:
        """The plan as one TensorFlow function, which every device calls."""
        return EmittedProgram(plan, self, slices, runs_once=runs_once)

    def step(self, program: str, plan: Plan) -> AbstractContextManager[None]:
        """Held while the program runs: one at a time in a process, since the collectives of two would mix."""
        return running_step(program, plan)

    def hlo(self, plan: Plan, program: str) -> None:
        """None: TensorFlow runs the program, and nothing is compiled before."""

    def __repr__(self) -> str:
        return f'SpmdMeshImpl("{self.shape}", "{self.layout_rules}", devices={list(self.devices)})'
