"""What can be asked of a mesh beside its shape and the layout, declared once for every mesh, for gin and for flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import tensorflow as tf

from meshtf.axis_parts import AxisParts, SizesOfParts, axis_parts_of, sizes_of_parts
from meshtf.call_sites import says_where
from meshtf.dimension import Shape
from meshtf.errors import DeviceError, UsageError, counted, nearest
from meshtf.layout import MAX_PADDING, LayoutLike, LayoutRules, convert_to_layout_rules
from meshtf.planning.process_spans import ProcessOfCore, laid_over

SUM_DTYPES = {"float32": tf.float32, "bfloat16": tf.bfloat16}
"""In which gradients may be summed over cores, by name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshOptions:
    """How programs are planned and run on a mesh, beside its shape and the layout.

    None changes what a program computes; `gradient_sum_dtype`, `share_memory` and `compile_loops` change how it is
    rounded.

    Attributes:
      parameter_layout: of parameters and optimizer state as they are kept between steps; None: that of the mesh.
      activation_layout: rules for tensors with a dimension that no variable has, such as `batch`. They count in place
        of the layout's for the same dimension, but not over a mesh axis that splits another dimension of the tensor.
      axis_parts: mesh axes in parts of these sizes, the first one major, so that one axis may split several dimensions:
        with "data:16x32" a layout may name `data.0`, of 16 cores, and `data.1`, of 32, as well as `data`.
      shard_weight_update: whether cores that would repeat an update of weights divide it among themselves.
      bucket_bytes: small collectives travel together in buckets of at most so many bytes of each core; 0: each alone.
      gradient_sum_dtype: in which gradients are sent and summed over cores, tf.float32 or tf.bfloat16 (or its name);
        None: each in its own.
      collective_timeout_seconds: how long a device may wait in one collective before the step is ended, where the mesh
        can tell.
      max_padding: of what cores hold along a dimension that a layout does not divide, the largest share that may be
        padding: a layout with more is an error.
      check_memory: whether a program that needs more memory than the machine has left is refused before it takes any;
        its need is counted from the plan.
      keep_freed_memory: whether this process keeps memory that a step has freed for the next one; the first mesh on
        devices that asks for it decides for the process, all of it: see `meshtf.mesh_impl.freed_memory`.
      share_memory: whether virtual CPUs of one process hand one another their slices where these are, in the memory
        that they have in common; False: by TensorFlow's collectives, as GPUs and processes do.
      compile_loops: whether loops that ask for it, as those of decoding, become one function compiled by XLA where that
        is possible and pays: a program's report says which do. Their floats may differ in the last bits from those of
        loops that are not compiled.
      axes_over_processes: axes of the mesh that are laid over the processes of a cluster before the others, so that
        these stay within a process; by default the mesh's first ones are.
      num_processes: over how many processes to plan, where the mesh is on paper or in one process; None: one. A mesh
        in a cluster has those of its devices.

    Raises:
      DeviceError: `collective_timeout_seconds` or `num_processes` is not positive.
      LayoutError: `parameter_layout` or `activation_layout` is no layout, `axis_parts` are no parts.
      UsageError: `bucket_bytes` are no number of bytes, gradients cannot be summed in `gradient_sum_dtype`,
        `max_padding` is no share, or `check_memory`, `keep_freed_memory`, `share_memory` or `compile_loops` is neither
        True nor False.

    Examples:
      >>> options = mtf.MeshOptions(parameter_layout="hidden:rows", bucket_bytes=0)
      >>> mtf.PlanMeshImpl("rows:4", "batch:rows", options=options).options.bucket_bytes
      0
    """

    parameter_layout: LayoutLike | None = None
    activation_layout: LayoutLike | None = None
    axis_parts: str | Mapping[str, Sequence[int]] | SizesOfParts = ()
    shard_weight_update: bool = True
    bucket_bytes: int = 4 << 20
    gradient_sum_dtype: tf.DType | None = None
    collective_timeout_seconds: float = 300.0
    max_padding: float = MAX_PADDING
    check_memory: bool = True
    keep_freed_memory: bool = True
    share_memory: bool = True
    compile_loops: bool = True
    axes_over_processes: tuple[str, ...] = ()
    num_processes: int | None = None

    @says_where
    def __post_init__(self) -> None:
        for name in ("parameter_layout", "activation_layout"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, convert_to_layout_rules(getattr(self, name)))
        object.__setattr__(self, "axis_parts", sizes_of_parts(self.axis_parts))
        _check_bucket_bytes(self.bucket_bytes)
        object.__setattr__(self, "gradient_sum_dtype", _checked_sum_dtype(self.gradient_sum_dtype))
        if not isinstance(self.collective_timeout_seconds, int | float) or not self.collective_timeout_seconds > 0:
            raise DeviceError(
                f"collective_timeout_seconds must be positive, and is {self.collective_timeout_seconds!r}"
            )
        if not isinstance(self.max_padding, int | float) or not 0 <= self.max_padding <= 1:
            raise UsageError(f"max_padding is a share, from 0 to 1, and is {self.max_padding!r}")
        for name in ("check_memory", "keep_freed_memory", "share_memory", "compile_loops"):
            if not isinstance(getattr(self, name), bool):
                raise UsageError(f"{name} must be True or False, and is {getattr(self, name)!r}")
        if isinstance(self.axes_over_processes, str):
            raise UsageError(f'axes_over_processes is a tuple of names, not the text "{self.axes_over_processes}"')
        object.__setattr__(self, "axes_over_processes", tuple(self.axes_over_processes))
        number = self.num_processes
        if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
            raise DeviceError(f"num_processes must be positive, or None for one, and is {number!r}")

    def process_of_core(self, shape: Shape) -> ProcessOfCore:
        """By core of a mesh of this shape, the process that is planned for it. Empty where that is one.

        DeviceError where the processes cannot have equally many cores each.
        """
        number = self.num_processes or 1
        if shape.size % number:
            raise DeviceError(
                f"mesh [{shape}] has {counted(shape.size, 'core')}, which {number} processes cannot share equally"
            )
        return laid_over(shape, number, self.axes_over_processes) if number > 1 else ()

    def parts_of_axes(self, shape: Shape) -> AxisParts:
        """The parts of the axes of a mesh of this shape. LayoutError where it has no such axis."""
        return axis_parts_of(shape, sizes_of_parts(self.axis_parts))

    @property
    def parameter_layout_rules(self) -> LayoutRules | None:
        """`parameter_layout` as rules."""
        return None if self.parameter_layout is None else convert_to_layout_rules(self.parameter_layout)

    @property
    def activation_layout_rules(self) -> LayoutRules | None:
        """`activation_layout` as rules."""
        return None if self.activation_layout is None else convert_to_layout_rules(self.activation_layout)


class MeshOptionKeywords(TypedDict, total=False):
    """The fields of `MeshOptions` as the constructor of every mesh takes them, where tools see them."""

    parameter_layout: LayoutLike | None
    activation_layout: LayoutLike | None
    axis_parts: str | Mapping[str, Sequence[int]] | SizesOfParts
    shard_weight_update: bool
    bucket_bytes: int
    gradient_sum_dtype: tf.DType | None
    collective_timeout_seconds: float
    max_padding: float
    check_memory: bool
    keep_freed_memory: bool
    share_memory: bool
    compile_loops: bool
    axes_over_processes: tuple[str, ...]
    num_processes: int | None


def _check_bucket_bytes(number: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise UsageError(
            f"bucket_bytes is the number of bytes that small collectives may have together, 0 for each alone; "
            f"it is {number!r}"
        )


def _checked_sum_dtype(dtype: Any) -> tf.DType | None:
    """UsageError where gradients cannot be summed in it."""
    if dtype is None:
        return None
    name, given = (dtype.name, f"tf.{dtype.name}") if isinstance(dtype, tf.DType) else (str(dtype), repr(dtype))
    if name in SUM_DTYPES:
        return SUM_DTYPES[name]
    raise UsageError(
        f"gradient_sum_dtype is the dtype in which gradients are summed over cores: "
        f"{' or '.join(f'tf.{fitting}' for fitting in SUM_DTYPES)}, or None for each in its own; "
        f"it is {given}{nearest(name, SUM_DTYPES)}"
    )
