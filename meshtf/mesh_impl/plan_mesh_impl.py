"""A mesh on paper: programs are lowered for it and reported on, and run nowhere."""

from __future__ import annotations

import dataclasses
from typing import final

import tensorflow as tf

from meshtf.axis_parts import AxisParts
from meshtf.call_sites import says_where
from meshtf.dimension import Shape, ShapeLike
from meshtf.layout import LayoutLike, LayoutRules
from meshtf.mesh_impl.mesh_impl import BUCKET_BYTES, lay_out


@final
@dataclasses.dataclass(frozen=True, init=False)
class PlanMeshImpl:
    """A mesh of any size without devices, for `mtf.function` and `mtf.Lowering`.

    A program for it has the same report as for devices: memory and FLOPs per core, every collective with its bytes. No
    variable is made, whatever its size; calling the program is a UsageError.

    Attributes:
      shape: the mesh's named shape.
      axis_parts: none; inside a program, which axes `shape` has in parts.
      layout_rules: which dimension is split over which mesh axes.
      parameter_layout: the same for parameters and optimizer state as they are kept between steps, or None (attribute
        `parameter_layout_rules`).
      shard_weight_update: whether cores that would repeat an update of weights divide it among themselves.
      bucket_bytes: small collectives travel together in buckets of at most so many bytes of each core; 0: each alone.
      gradient_sum_dtype: in which gradients are summed over cores, tf.float32 or tf.bfloat16; None: each in its own.

    Examples:
      >>> pod = mtf.PlanMeshImpl("data:64;model:16", "batch:data;d_ff:model")
      >>> pod.shape.size
      1024
    """

    shape: Shape
    axis_parts: AxisParts
    layout_rules: LayoutRules
    parameter_layout_rules: LayoutRules | None
    shard_weight_update: bool
    bucket_bytes: int
    gradient_sum_dtype: tf.DType | None

    @says_where
    def __init__(
        self,
        shape: ShapeLike,
        layout_rules: LayoutLike,
        *,
        parameter_layout: LayoutLike | None = None,
        shard_weight_update: bool = True,
        bucket_bytes: int = BUCKET_BYTES,
        gradient_sum_dtype: tf.DType | None = None,
    ) -> None:
        """Raises:
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

    @property
    def size(self) -> int:
        """Number of cores."""
        return self.shape.size

    @property
    def ndims(self) -> int:
        """Number of mesh axes."""
        return self.shape.ndims
