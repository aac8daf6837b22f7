"""A mesh laid onto the torus of a TPU, whose cores run one program compiled by XLA."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import final

import tensorflow as tf

from meshtf.axis_parts import AxisParts
from meshtf.call_sites import says_where
from meshtf.dimension import Shape, ShapeLike
from meshtf.errors import DeviceError
from meshtf.layout import LayoutLike, LayoutRules
from meshtf.mesh_impl.mesh_impl import BUCKET_BYTES, lay_out
from meshtf.mesh_impl.tpu.torus import Torus
from meshtf.mesh_impl.tpu.tpu_system import LOCAL, TpuSystem, tpu_system

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
      axis_parts: none; inside a program, which axes `shape` has in parts.
      layout_rules: which dimension is split over which mesh axes.
      parameter_layout: the same for parameters and optimizer state as they are kept between steps, or None (attribute
        `parameter_layout_rules`).
      shard_weight_update: whether cores that would repeat an update of weights divide it among themselves.
      bucket_bytes: small collectives travel together in buckets of at most so many bytes of each core; 0: each alone.
      gradient_sum_dtype: in which gradients are summed over cores, tf.float32 or tf.bfloat16; None: each in its own.
      physical_torus: how the chips stand, as "2x2", to lower a program without a TPU; the attribute is `torus`, the
        chips and the cores on each.
      core_positions: by core number, its chip's coordinates on the torus and its number on the chip. Neighbours along
        a mesh axis are on one chip, or on chips with a link between them.
      tpu: the name of the TPU.

    Examples:
      >>> cores = mtf.TpuMeshImpl("data:4;model:2", "batch:data;d_ff:model", physical_torus="2x2")
      >>> cores.shape
      Shape[data:4 model:2]
    """

    shape: Shape
    axis_parts: AxisParts
    layout_rules: LayoutRules
    parameter_layout_rules: LayoutRules | None
    shard_weight_update: bool
    bucket_bytes: int
    gradient_sum_dtype: tf.DType | None
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
        parameter_layout: LayoutLike | None = None,
        shard_weight_update: bool = True,
        bucket_bytes: int = BUCKET_BYTES,
        gradient_sum_dtype: tf.DType | None = None,
        tpu: str = LOCAL,
    ) -> None:
        """`physical_torus`: "4x4" or "4x4x8", in chips with two cores on each, or a `Torus`, whose chips may have one;
        by default that of the TPU, which must then be there. `tpu`: "local", or a name or address that
        `tf.distribute.cluster_resolver.TPUClusterResolver` takes.

        Raises:
          DeviceError: the mesh does not fit the torus (the message lists what does), or there is no TPU.
          LayoutError: for a rule with an axis that the mesh does not have.
          UsageError: for `bucket_bytes` that are no number of bytes, or another `gradient_sum_dtype`.
        """
        lay_out(
            self,
            shape,
            layout_rules,
            parameter_layout,
            shard_weight_update=shard_weight_update,
            bucket_bytes=bucket_bytes,
            gradient_sum_dtype=gradient_sum_dtype,
        )
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

    @says_where
    def _system(self) -> TpuSystem:
        system = tpu_system(self.tpu)
        if system.torus != self.torus:
            raise DeviceError(
                _ANOTHER_TORUS.format(shape=self.shape, given=self.torus, tpu=self.tpu, found=system.torus)
            )
        return system
