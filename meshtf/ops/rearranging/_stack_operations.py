"""The operations behind stack and unstack: tensors side by side along a new dimension, and back."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import restricted, without_split
from meshtf.ops.algebra.broadcasting import aligner
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner


class StackOperation(Operation):
    """Tensors with the same dimensions side by side along a new dimension; None stands for zeros."""

    passes_pending_sums = True
    mapped = "all inputs"

    def __init__(self, xs: Sequence[Tensor | None], shape: Shape, dim_name: str, *, name: str = "stack") -> None:
        tensors = [x for x in xs if x is not None]
        super().__init__(tensors, [(shape, tensors[0].dtype)], name=name)
        self.dim_name = dim_name
        self._is_given = [x is not None for x in xs]

    def needs_whole(self, name: str) -> bool:
        return name == self.dim_name

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (dy,) = grad_ys
        assert dy is not None
        outputs = itertools.compress(UnstackOperation(dy, self.dim_name).outputs, self._is_given)
        return [transpose(y, x.shape) for y, x in zip(outputs, self.inputs, strict=True)]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        axis, dtype, is_given = output.shape.axis(self.dim_name), output.dtype, self._is_given
        layout = without_split(planner.layouts[output], output.shape, self.dim_name)
        values = planner.read_operands(self, [restricted(layout, output.shape, x.shape) for x in self.inputs])
        base = output.shape - [output.shape[axis]]
        aligners = [aligner(x.shape, base) for x in self.inputs]
        size = restricted(layout, output.shape, base).slice_shape(base, planner.mesh_shape)

        def emit(core: Core, *slices: tf.Tensor) -> tf.Tensor:
            own = (align(x) for align, x in zip(aligners, slices, strict=True))
            zeros = None if all(is_given) else tf.zeros(size, dtype)
            return tf.stack([next(own) if given else zeros for given in is_given], axis)

        spec = (output.shape, output.dtype, layout)
        planner.write(output, planner.compute("stack", emit, values, [spec], pending=values[0].pending)[0])


class UnstackOperation(Operation):
    """The slices of size 1 along a dimension, without it."""

    mapped = "by name"

    def __init__(self, x: Tensor, dim_name: str, name: str = "unstack") -> None:
        dim = x.shape.get_dim_by_name(dim_name)
        super().__init__([x], [(x.shape - [dim], x.dtype)] * dim.size, name=name)
        self.dim_name = dim_name

    def needs_whole(self, name: str) -> bool:
        return name == self.dim_name

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (x,) = self.inputs
        return [StackOperation(grad_ys, x.shape, self.dim_name).outputs[0]]

    def gathers_because(self, layouts: LayoutTable) -> str:
        (x,) = self.inputs
        is_split = layouts[x].axes[x.shape.axis(self.dim_name)]
        return f"each element of {self.dim_name} is a result, and all cores work on each result" if is_split else ""

    def lower(self, planner: Planner) -> None:
        (x,) = self.inputs
        axis = x.shape.axis(self.dim_name)
        value = planner.read(x, without_split(planner.layouts[x], x.shape, self.dim_name))
        specs = [(y.shape, y.dtype, restricted(value.layout, x.shape, y.shape)) for y in self.outputs]
        values = planner.compute("unstack", lambda core, s: tf.unstack(s, axis=axis), [value], specs)
        for output, piece in zip(self.outputs, values, strict=True):
            planner.write(output, piece)
