"""The operation behind `scan`, `while_loop` and `serialize_training_step`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from meshtf.control_flow._blocks import has_side_effect, overrides_layout
from meshtf.control_flow._elements import Elements
from meshtf.control_flow.loops._loop_for_all import loop_for_all
from meshtf.control_flow.loops._loop_gradient import loop_gradient
from meshtf.control_flow.loops._loop_lowering import lower_loop
from meshtf.control_flow.loops.loop_spec import LoopSpec, SlicedTensor, StackedTensor
from meshtf.dimension import Dimension, Shape
from meshtf.graph.dtypes import is_differentiable
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import TensorLayout
from meshtf.planning.layouts.layout_table import LayoutTable, ResolvedLayout
from meshtf.planning.pending_sums import PendingSums, block_sums
from meshtf.planning.planner import Planner


class LoopOperation(Operation):
    """Repeats a block. Its outputs are the carried, stacked and accumulated values, then the number of iterations."""

    takes_padding = True

    def __init__(self, spec: LoopSpec, like: Tensor, name: str) -> None:
        captures = list(dict.fromkeys(x for block in spec.blocks for x in block.captures))
        inputs = [*(c.initial for c in spec.carried), *(s.whole for s in spec.sliced), *captures]
        inputs += [spec.iterations.count] if spec.iterations.count is not None else []
        outputs = [(c.entering.shape, c.entering.dtype) for c in spec.carried]
        outputs += [(s.shape, s.part.dtype) for s in spec.stacked]
        outputs += [(a.term.shape, a.dtype) for a in spec.accumulated]
        super().__init__(inputs, [*outputs, (Shape([]), tf.int32)], name=name, mesh=like.mesh)
        self.spec = spec
        self.captures = captures
        self.blocks = spec.blocks
        self.has_side_effect = has_side_effect(spec.blocks)
        self.overrides_layout |= overrides_layout(spec.blocks)

    @property
    def carried_outputs(self) -> tuple[Tensor, ...]:
        return self.outputs[: len(self.spec.carried)]

    @property
    def stacked_outputs(self) -> tuple[Tensor, ...]:
        start = len(self.spec.carried)
        return self.outputs[start : start + len(self.spec.stacked)]

    @property
    def accumulated_outputs(self) -> tuple[Tensor, ...]:
        start = len(self.spec.carried) + len(self.spec.stacked)
        return self.outputs[start : start + len(self.spec.accumulated)]

    @property
    def trips(self) -> Tensor:
        return self.outputs[-1]

    def stack(self, part: Tensor) -> Tensor:
        """Adds a tensor of the block to the loop's outputs, stacked over all iterations."""
        if part in self.spec.stacked_parts:
            return self.stacked_outputs[self.spec.stacked_parts.index(part)]
        stacked = StackedTensor(part, _iterations_dim(self.spec.dim.size, part.shape))
        added = Tensor(self, stacked.shape, part.dtype)
        place = len(self.spec.carried) + len(self.spec.stacked)
        self.outputs = (*self.outputs[:place], added, *self.outputs[place:])
        # The new output is inserted before others, whose numbers change.
        for index, output in enumerate(self.outputs):
            output.index = index
        self.spec = dataclasses.replace(self.spec, stacked=(*self.spec.stacked, stacked))
        self.blocks = self.spec.blocks
        return added

    @property
    def has_gradient(self) -> bool:
        return any(is_differentiable(t.dtype) for t in self.inputs)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return loop_gradient(self, grad_ys)

    def for_all(self, elements: Elements) -> LoopOperation:
        return loop_for_all(self, elements)

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        spec, condition = self.spec, self.spec.iterations.condition
        layouts.give({c.entering: layouts.resolved(c.initial) for c in spec.carried})
        layouts.give({s.part: _part_layout(s, layouts) for s in spec.sliced})
        if condition is not None:
            initial = [layouts.resolved(c.initial) for c in spec.carried]
            layouts.give(dict(zip(condition.bound, initial, strict=True)))
        for block in self.blocks:
            layouts.resolve(block.operations)
        parts = [layouts.resolved(t) for t in spec.stacked_parts]
        return [
            *(layouts.resolved(c.entering) for c in spec.carried),
            # The iterations' dimension comes first and is never split: every core runs every iteration.
            *(dataclasses.replace(own, layout=TensorLayout(((), *own.layout.axes))) for own in parts),
            *(layouts.resolved(t) for t in spec.terms),
            layouts.under_rules(Shape([])),
        ]

    def pending_sums(self, layouts: LayoutTable) -> PendingSums:
        """Says where the body's sums over cores are done. Carried values are summed at the end of each iteration."""
        leaving = [c.leaving for c in self.spec.carried]
        return block_sums(self.spec.body, leaving, layouts, self.spec.terms, max(1, self.spec.dim.size))

    def output_pending_axes(self, layouts: LayoutTable) -> Sequence[tuple[str, ...]]:
        left = self.pending_sums(layouts).left_by([*self.spec.stacked_parts, *self.spec.terms])
        return [*((),) * len(self.spec.carried), *left, ()]

    def lower(self, planner: Planner) -> None:
        lower_loop(self, planner)


def _part_layout(sliced: SlicedTensor, layouts: LayoutTable) -> ResolvedLayout:
    own = layouts.resolved(sliced.whole)
    axes = tuple(own.layout.axes[sliced.whole.shape.axis(d)] for d in sliced.part.shape)
    return dataclasses.replace(own, layout=TensorLayout(axes))


def _iterations_dim(size: int, part: Shape) -> Dimension:
    """Makes a dimension to stack tensors that a gradient keeps from all iterations.

    Its name must be new, since a part may already have the loop's dimension. No layout rule must split it.
    """
    name = "(iterations)"
    while part.has(name):
        name = f"({name})"
    return Dimension(name, size)
