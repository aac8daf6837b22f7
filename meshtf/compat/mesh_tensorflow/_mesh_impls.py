"""Meshes with Mesh TensorFlow's interface: a backend of meshtf that also has the methods which layers call."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from meshtf.compat.mesh_tensorflow._dimension import Shape, convert_to_shape
from meshtf.compat.mesh_tensorflow._layout import LayoutRules, TensorLayout, convert_to_layout_rules, numbered
from meshtf.dimension import DimensionLike, ShapeLike
from meshtf.layout import LayoutLike
from meshtf.mesh_impl.mesh_impl import MeshImpl as Backend
from meshtf.mesh_impl.mesh_impl import Program
from meshtf.mesh_impl.mesh_options import MeshOptions
from meshtf.mesh_impl.slices import Slices
from meshtf.planning import core_positions
from meshtf.planning.plan import Plan
from meshtf.planning.process_spans import ProcessOfCore


class AnswersOfMesh(abc.ABC):
    """The methods of a mesh that layers and operations call."""

    @property
    @abc.abstractmethod
    def shape(self) -> Shape:
        """The mesh axes with their names and sizes."""

    @property
    @abc.abstractmethod
    def layout_rules(self) -> LayoutRules:
        """The rules that say which dimension is split over which axis."""

    @property
    def ndims(self) -> int:
        """Number of mesh axes."""
        return self.shape.ndims

    @property
    def size(self) -> int:
        """Number of cores."""
        return self.shape.size

    @property
    def supports_control_dependencies(self) -> bool:
        return True

    def tensor_layout(self, x: ShapeLike) -> TensorLayout:
        """The layout of a tensor of this shape: a mesh axis number, or None, for each dimension."""
        return numbered(self.layout_rules.tensor_layout(named_shape(x), self.shape), self.shape)

    def mesh_axis_to_cumprod(self, x: ShapeLike) -> list[int | None]:
        """The product of the sizes before the dimension that each mesh axis splits, or None."""
        before = named_shape(x).cumprod
        axes = self.tensor_layout(x).mesh_axis_to_tensor_axis(self.ndims)
        return [None if axis is None else before[axis] for axis in axes]

    def slice_shape(self, x: ShapeLike) -> list[int]:
        """The sizes of one core's slice of a tensor of this shape."""
        shape = named_shape(x)
        return list(self.tensor_layout(shape).slice_shape(shape, self.shape))

    def slice_size(self, x: ShapeLike) -> int:
        """The number of elements of one core's slice of a tensor of this shape."""
        return math.prod(self.slice_shape(x))

    def laid_out_size(self, x: ShapeLike) -> int:
        """The number of elements of all cores' slices together."""
        return self.slice_size(x) * self.size

    def tensor_dimension_to_mesh_axis(self, dim: DimensionLike) -> int | None:
        """The number of the mesh axis that splits a dimension, or None."""
        return self.layout_rules.tensor_dimension_to_mesh_axis(dim, self.shape)

    def slice_begin(self, x: ShapeLike, pnum: int) -> list[int]:
        """The indices at which a core's slice of a tensor of this shape begins."""
        shape = named_shape(x)
        layout = self.tensor_layout(shape)
        sizes = layout.slice_shape(shape, self.shape)
        block = core_positions.block(pnum, layout.axes, self.shape)
        return [position * size for position, size in zip(block, sizes, strict=True)]


class MeshImpl(AnswersOfMesh):
    """A mesh without devices. It only computes sizes and layouts.

    Args:
      shape: the mesh's named shape.
      layout_rules: which dimension is split over which mesh axis.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> old.MeshImpl("rows:2;cols:4", "batch:rows;heads:cols").slice_shape("batch:8 length:3 heads:4")
      [4, 3, 1]
    """

    def __init__(self, shape: ShapeLike, layout_rules: LayoutLike) -> None:
        self._shape, self._layout_rules = convert_to_shape(shape), convert_to_layout_rules(layout_rules)

    @property
    def shape(self) -> Shape:
        return self._shape

    @property
    def layout_rules(self) -> LayoutRules:
        return self._layout_rules


class WrappedMeshImpl(MeshImpl):
    """A mesh that passes every call on to a backend.

    Args:
      backend: the backend that runs programs.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend.shape, backend.layout_rules)
        self._backend = backend

    @property
    def options(self) -> MeshOptions:
        return self._backend.options

    @property
    def devices(self) -> tuple[str, ...]:
        return self._backend.devices

    @property
    def process_of_core(self) -> ProcessOfCore:
        return self._backend.process_of_core

    @property
    def compiles_programs(self) -> bool:
        return self._backend.compiles_programs

    @property
    def unrolls_layers(self) -> bool:
        return self._backend.unrolls_layers

    @property
    def kernel_platform(self) -> str:
        return self._backend.kernel_platform

    @property
    def takes_arrays(self) -> bool:
        return self._backend.takes_arrays

    @property
    def steps_ahead(self) -> int:
        return self._backend.steps_ahead

    @property
    def float32_products(self) -> str:
        return self._backend.float32_products

    @property
    def peak_bytes(self) -> int | None:
        return self._backend.peak_bytes

    def check_runs(self, program: str) -> None:
        self._backend.check_runs(program)

    def check_alike(self, program: str, texts: Callable[[], Mapping[str, str]]) -> None:
        self._backend.check_alike(program, texts)

    def zero_slices(self, name: str, slice_shape: Sequence[int], dtype: tf.DType) -> Slices:
        return self._backend.zero_slices(name, slice_shape, dtype)

    def program(self, plan: Plan, slices: Mapping[str, Slices], *, runs_once: bool = False) -> Program:
        return self._backend.program(plan, slices, runs_once=runs_once)

    def step(self, program: str, plan: Plan) -> AbstractContextManager[None]:
        return self._backend.step(program, plan)

    def hlo(self, plan: Plan, program: str) -> bytes | None:
        return self._backend.hlo(plan, program)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._backend!r})"


def named_shape(x: Any) -> Shape:
    """Returns the shape of a tensor, or makes a shape from its description."""
    return convert_to_shape(getattr(x, "shape", x))
