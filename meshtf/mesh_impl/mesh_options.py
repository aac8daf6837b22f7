"""The options of a mesh besides its shape and layout, declared once for all mesh implementations, gin and flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

import tensorflow as tf

from meshtf.axis_parts import AxisParts, SizesOfParts, axis_parts_of, sizes_of_parts
from meshtf.call_sites import says_where
from meshtf.dimension import Shape, ShapeLike, shape_of
from meshtf.errors import DeviceError, LayoutError, ShapeError, UsageError, counted, nearest
from meshtf.layout import MAX_PADDING, LayoutLike, LayoutRules, check_mesh_axes, convert_to_layout_rules
from meshtf.mesh_impl.mesh_shape_rule import MeshShapeRule, is_open
from meshtf.planning.process_spans import ProcessOfCore, laid_over

SUM_DTYPES = {"float32": tf.float32, "bfloat16": tf.bfloat16}
"""The dtypes in which gradients may be summed over cores, by name."""

PRODUCT_PRECISIONS = ("default", "high", "highest")
"""The precisions of products, by XLA's names, from the fastest to the most precise."""

_BYTES_END = 2**63


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshOptionFields:
    """Declares the options of a mesh, each with its default. `MeshOptions` documents and checks them.

    `meshtf.train.Training` inherits these fields, so that gin can set them.
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
    unroll_layers: bool = True
    axes_over_processes: tuple[str, ...] = ()
    num_processes: int | None = None
    product_precision: str | None = None
    memory_fraction: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshOptions(MeshOptionFields):
    """Options for planning and running programs on a mesh, besides its shape and layout.

    No option changes a program's results beyond rounding. The options that change rounding are `gradient_sum_dtype`,
    `product_precision`, `share_memory`, `compile_loops` and `unroll_layers`.

    Attributes:
      parameter_layout: the layout of parameters and optimizer state between steps. None: the layout of the mesh.
      activation_layout: rules for tensors with a dimension that no variable has, such as `batch`. They replace the
        layout's rules for the same dimension, but not over a mesh axis that splits another dimension of the tensor.
      axis_parts: sizes of parts of mesh axes, the first part major, so that one axis can split several dimensions. With
        "data:16x32" a layout may name `data.0` with 16 cores and `data.1` with 32 cores, as well as `data`.
      shard_weight_update: whether cores that would repeat an update of weights divide it among themselves.
      bucket_bytes: the most bytes per core in a bucket, in which small collectives are sent together. 0: each alone.
      gradient_sum_dtype: the dtype in which gradients are sent and summed over cores, tf.float32 or tf.bfloat16 (or its
        name). None: each gradient's own.
      collective_timeout_seconds: how long a device may wait in one collective before the step is aborted, if the mesh
        can detect this.
      max_padding: the largest share of padding in a core's slice, along a dimension that its axes do not divide. A
        layout with more is an error.
      check_memory: whether to refuse a program that needs more memory than the machine has left, before it allocates
        any. The need is computed from the plan.
      keep_freed_memory: whether this process keeps memory that a step has freed for the next step. The first mesh on
        devices that enables it decides for the whole process: see `meshtf.mesh_impl.host.freed_memory`.
      share_memory: whether virtual CPUs of one process run as one program in their shared memory. Collectives are then
        additions, work that several cores would repeat is done once, and loops may be compiled. False turns off all of
        `meshtf.lowering.processors`: each core runs the plain program, with TensorFlow's collectives between cores, as
        on GPUs and between processes.
      compile_loops: whether XLA compiles loops that request it, such as decoding, into one function, if that is
        possible and pays. A program's report says which loops are compiled. Their floats may differ in the last bits
        from the floats of loops that are not compiled.
      unroll_layers: whether to unroll loops over the layers of a stack, if that is faster (on GPUs) and XLA still
        compiles the program within about a minute. A program's report says whether they are unrolled.
      axes_over_processes: mesh axes that are laid over the processes of a cluster before the others, so that the others
        stay within a process. The default is the mesh's first axes.
      num_processes: the number of processes to plan for, if the mesh has no devices or is in one process. None: one. A
        mesh in a cluster has the processes of its devices.
      product_precision: the arithmetic of float32 products on GPUs and TPUs, for every einsum and convolution:
        "default" is fastest (TF32 on a GPU, one pass of bfloat16 on a TPU), "high" is TF32 on a GPU and three passes on
        a TPU, "highest" is float32. None: "default". Virtual CPUs always multiply in float32.
      memory_fraction: the share of each GPU's memory that this process reserves when its first mesh opens them, from 0
        to 1. None: the runtime's default, 0.75.

    Raises:
      DeviceError: `collective_timeout_seconds` or `num_processes` is not positive.
      LayoutError: `parameter_layout` or `activation_layout` is not a layout, or `axis_parts` are invalid.
      UsageError: `bucket_bytes` is not a number of bytes, gradients cannot be summed in `gradient_sum_dtype`,
        `max_padding` or `memory_fraction` is not a share, there is no such `product_precision`, or a boolean option is
        neither True nor False.

    Examples:
      >>> options = mtf.MeshOptions(parameter_layout="hidden:rows", bucket_bytes=0)
      >>> mtf.PlanMeshImpl("rows:4", "batch:rows", options=options).options.bucket_bytes
      0
    """

    @says_where
    def __post_init__(self) -> None:
        for name in ("parameter_layout", "activation_layout"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _rules(name, getattr(self, name)))
        object.__setattr__(self, "axis_parts", sizes_of_parts(self.axis_parts))
        object.__setattr__(self, "gradient_sum_dtype", _checked_sum_dtype(self.gradient_sum_dtype))
        _check_bucket_bytes(self.bucket_bytes)
        for field in dataclasses.fields(self):
            if isinstance(field.default, bool) and not isinstance(value := getattr(self, field.name), bool):
                raise UsageError(f"{field.name} must be True or False, and is {value!r}")
        if not isinstance(self.collective_timeout_seconds, int | float) or not self.collective_timeout_seconds > 0:
            raise DeviceError(
                f"collective_timeout_seconds must be positive, and is {self.collective_timeout_seconds!r}"
            )
        if not isinstance(self.max_padding, int | float) or not 0 <= self.max_padding <= 1:
            raise UsageError(f"max_padding must be a share, from 0 to 1, and is {self.max_padding!r}")
        _check_precision(self.product_precision)
        _check_memory_fraction(self.memory_fraction)
        object.__setattr__(self, "axes_over_processes", _checked_axes(self.axes_over_processes))
        number = self.num_processes
        if number is not None and (not isinstance(number, int) or isinstance(number, bool) or number < 1):
            raise DeviceError(f"num_processes must be positive, or None for one, and is {number!r}")

    def process_of_core(self, shape: Shape) -> ProcessOfCore:
        """The planned process of each core, for a mesh of this shape; empty if there is only one process.

        Raises DeviceError if the cores cannot be divided equally among the processes.
        """
        number = self.num_processes or 1
        if shape.size % number:
            raise DeviceError(
                f"mesh [{shape}] has {counted(shape.size, 'core')}, which {number} processes cannot share equally"
            )
        return laid_over(shape, number, self.axes_over_processes) if number > 1 else ()

    def parts_of_axes(self, shape: Shape) -> AxisParts:
        """The parts of the axes of a mesh of this shape. Raises LayoutError if it lacks such an axis."""
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
    """The fields of `MeshOptions` as keywords of every mesh's constructor, so that tools see them."""

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
    unroll_layers: bool
    axes_over_processes: tuple[str, ...]
    num_processes: int | None
    product_precision: str | None
    memory_fraction: float | None


def _rules(name: str, layout: LayoutLike) -> LayoutRules:
    """Converts to layout rules. If that fails, raises LayoutError with the name of the option."""
    try:
        return convert_to_layout_rules(layout)
    except LayoutError as error:
        raise LayoutError(f"{name}: {error}") from None


def _check_bucket_bytes(number: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < _BYTES_END:
        bounds = "less than 2^63" if isinstance(number, int) and number >= _BYTES_END else "0 or more"
        raise UsageError(
            f"bucket_bytes must be an integer, {bounds}, and is {number!r}: small collectives travel together in "
            f"buckets of so many bytes, and each alone where it is 0"
        )


def _checked_sum_dtype(dtype: Any) -> tf.DType | None:
    """The dtype by its name. Raises UsageError if gradients cannot be summed in it."""
    if dtype is None:
        return None
    name, given = (dtype.name, f"tf.{dtype.name}") if isinstance(dtype, tf.DType) else (str(dtype), repr(dtype))
    if name in SUM_DTYPES:
        return SUM_DTYPES[name]
    raise UsageError(
        f"gradient_sum_dtype must be one of {', '.join(SUM_DTYPES)}, or None, and is {given}"
        f"{nearest(name, SUM_DTYPES)}: gradients are summed over cores in it, or each in its own dtype"
    )


def _check_precision(name: object) -> None:
    if name is not None and name not in PRODUCT_PRECISIONS:
        raise UsageError(
            f"product_precision must be one of {', '.join(PRODUCT_PRECISIONS)}, or None, and is {name!r}"
            f"{nearest(str(name), PRODUCT_PRECISIONS)}"
        )


def _check_memory_fraction(share: object) -> None:
    if share is not None and (not isinstance(share, int | float) or isinstance(share, bool) or not 0 < share <= 1):
        raise UsageError(f"memory_fraction must be a share of a GPU's memory, above 0 and at most 1, and is {share!r}")


def _checked_axes(names: Any) -> tuple[str, ...]:
    """The names as a tuple. Raises UsageError if they are not a list of names."""
    if isinstance(names, str) or not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise UsageError(f'axes_over_processes must be a list of names, as ("rows",), and is {names!r}')
    return tuple(names)


def checked_mesh(
    shape: ShapeLike, layout_rules: LayoutLike, options: MeshOptions | None, changes: MeshOptionKeywords
) -> tuple[Shape, LayoutRules, MeshOptions]:
    """Checks and returns a mesh's shape, its rules, and its options, where keywords replace fields of `options`.

    Raises:
      DeviceError: an axis has no cores.
      LayoutError: a rule names an axis that the mesh does not have.
      UsageError: a keyword is not an option, or an option has an invalid value.
    """
    if shape is None:
        raise ShapeError('the shape of a mesh is needed, such as "rows:2;cols:4"')
    if is_open(shape):
        rule = MeshShapeRule.parse(shape)
        raise ShapeError(f"mesh [{rule}] is as large as the devices allow, and this backend counts none; give sizes")
    converted, rules = shape_of(shape), convert_to_layout_rules(layout_rules)
    known = [field.name for field in dataclasses.fields(MeshOptions)]
    for name in changes:
        if name not in known:
            raise UsageError(f'a mesh has no option "{name}"{nearest(name, known)}; its options are {", ".join(known)}')
    if options is not None and not isinstance(options, MeshOptions):
        raise UsageError(f"options must be an mtf.MeshOptions, not {type(options).__name__}")
    chosen = dataclasses.replace(options or MeshOptions(), **changes)
    axes = chosen.parts_of_axes(converted).named(converted)
    for some in (rules, chosen.parameter_layout_rules, chosen.activation_layout_rules):
        if some is not None:
            check_mesh_axes(some, axes)
    unknown = [axis for axis in chosen.axes_over_processes if axis not in converted.dimension_names]
    if unknown:
        raise LayoutError(
            f"axes_over_processes names {', '.join(unknown)}, and mesh [{converted}] has no such axis"
            f"{nearest(unknown[0], converted.dimension_names)}"
        )
    if converted.size < 1:
        raise DeviceError(f"mesh [{converted}] has no cores; every axis has at least size 1")
    return converted, rules, chosen
