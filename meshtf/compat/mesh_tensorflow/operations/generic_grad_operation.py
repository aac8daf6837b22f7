"""Derives the gradients of an operation class from its `lower`.

It differentiates the functions of slices and the collectives in `lower`. For example, `lower` may multiply two slices
and sum the product over a mesh axis with `allreduce`. The gradient takes these steps in reverse: `allreduce` gives each
core the whole gradient of its term, and TensorFlow differentiates the product.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.compat.mesh_tensorflow.operations.laid_out_tensor import LaidOutTensor
from meshtf.compat.mesh_tensorflow.operations.operation import Operation
from meshtf.compat.mesh_tensorflow.operations.slice_lowering import SliceLowering
from meshtf.compat.mesh_tensorflow.operations.slices_mesh_impl import SlicesMeshImpl
from meshtf.errors import GraphError
from meshtf.graph.tensor import Tensor
from meshtf.planning.layouts.layout_table import LayoutTable, ResolvedLayout


class GenericGradOperation(Operation):
    """The gradients of an operation class's inputs, for its `gradient` to return. An unconnected input gets zeros.

    It repeats the steps of `lower` and then differentiates each step, the last one first. TensorFlow differentiates
    functions. Each term of an allreduce gets the whole gradient of the sum. Other collectives are reversed. If several
    cores share a slice, their contributions to its gradient are summed. Mesh TensorFlow did not sum them.

    Args:
      forward_op: an operation of a class derived from `mtf.Operation`.
      grad_ys: the gradients of its outputs, with None where there is none.
      name: the operation's name.

    Raises:
      GraphError: the operation has another class, or there are no gradients.
    """

    def __init__(self, forward_op: Operation, grad_ys: Sequence[Tensor | None], name: str | None = None) -> None:
        if not isinstance(forward_op, Operation):
            raise GraphError(
                f"mtf.GenericGradOperation takes operations of classes that derive from mtf.Operation, and "
                f"{forward_op!r} is none; call mtf.gradients"
            )
        self._forward = forward_op
        self._grads = {y: dy for y, dy in zip(forward_op.outputs, grad_ys, strict=True) if dy is not None}
        super().__init__([*forward_op.inputs, *self._grads.values()], forward_op.mesh, name or "generic_grad")
        self._outputs = [Tensor(self, x.shape, x.dtype) for x in forward_op.inputs]

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        return [layouts.resolved(x) for x in self._forward.inputs]

    def lower(self, lowering: SliceLowering) -> None:
        forward = lowering.of_operation(self._forward)
        written = forward.lowered(type(self._forward).lower)
        gradients = _Gradients(forward.slices_mesh_impl)
        for y, dy in self._grads.items():
            gradients.add(written[y], lowering.tensors.laid_out_as(dy, y))
        gradients.go_back()
        for x, dx in zip(self._forward.inputs, self.outputs, strict=True):
            lowering.set_tensor_lowering(dx, gradients.of(forward.tensors[x]))


class _Gradients:
    """The gradients found so far, by slices.

    A gradient differs along no more mesh axes than its slices.
    """

    def __init__(self, mesh_impl: SlicesMeshImpl) -> None:
        self._mesh_impl = mesh_impl
        self._found: dict[LaidOutTensor, LaidOutTensor] = {}

    def add(self, x: LaidOutTensor, dx: LaidOutTensor) -> None:
        extra = sorted(dx.axes - x.axes)
        if extra:
            dx = self._mesh_impl.allreduce(dx, extra, "SUM")
        before = self._found.get(x)
        self._found[x] = dx if before is None else self._mesh_impl.slicewise(tf.add, before, dx)

    def go_back(self) -> None:
        for step in list(self._mesh_impl.steps)[::-1]:
            dys = [self._found.get(y) for y in step.outputs]
            if any(dy is not None for dy in dys):
                for x, dx in zip(step.inputs, step.transposed(dys), strict=True):
                    if dx is not None:
                        self.add(x, dx)

    def of(self, x: LaidOutTensor) -> LaidOutTensor:
        if x not in self._found:
            return self._mesh_impl.slicewise(tf.zeros_like, x)
        return self._found[x]
