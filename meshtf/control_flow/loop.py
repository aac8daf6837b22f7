"""The loop behind scan and while_loop: values carried, parts taken, parts stacked, sums accumulated."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from meshtf.control_flow.blocks import has_side_effect, overrides_layout
from meshtf.control_flow.loop_gradient import loop_gradient
from meshtf.control_flow.loop_lowering import lower_loop
from meshtf.control_flow.microbatch_cut import MicrobatchCut
from meshtf.control_flow.recomputation import KEEP_EVERYTHING, RecomputePolicy
from meshtf.dimension import Dimension, Shape
from meshtf.graph import Block, Operation, Tensor, is_differentiable, sum_dtype
from meshtf.layout import TensorLayout
from meshtf.planning.layout_table import LayoutTable, ResolvedLayout
from meshtf.planning.pending_sums import PendingSums, block_sums
from meshtf.planning.pipeline_note import PipelineNote
from meshtf.planning.planner import Planner


@dataclasses.dataclass(frozen=True, eq=False)
class LoopSpec:
    """What a loop repeats.

    carried: for each value carried, its initial value, the tensor that it is inside, and the one that it becomes.
    sliced: tensors over `dim`, and what each iteration's part of them is inside.
    stacked: tensors of the block, returned for all iterations, and the dimension that is then put first.
    gradients: of those, the gradients of what a loop sliced, and what that is.
    accumulated: tensors of the block, returned summed over the iterations, which is done in float32 at least; sums over
      cores may stay pending inside.
    condition: a block over the values carried, of one bool scalar; the loop ends where it is false.
    count: an int32 scalar: how many iterations, at most `dim.size`.
    is_segment: its iterations are counted on from one of the loop around to the next: random bits are then those of one
      long loop.
    counts_layers: its iterations are the layers of a stack: random bits are those of the layers unrolled.
    draws_alike: random bits are the same in every iteration.
    microbatched: where each iteration is a micro-batch, how the batch is cut: random bits are then those of the whole.
    returns_wide_sums: what is accumulated is returned as it was summed, and not rounded to the dtype of its terms.
    pipeline: what is known of its iterations where they are the steps of a pipeline.
    """

    dim: Dimension
    carried: tuple[tuple[Tensor, Tensor, Tensor], ...]
    sliced: tuple[tuple[Tensor, Tensor], ...]
    stacked: tuple[tuple[Tensor, Dimension], ...]
    accumulated: tuple[Tensor, ...]
    operations: tuple[Operation, ...]
    gradients: tuple[tuple[Tensor, Tensor], ...] = ()
    condition: Block | None = None
    count: Tensor | None = None
    is_reversed: bool = False
    is_segment: bool = False
    counts_layers: bool = False
    draws_alike: bool = False
    microbatched: MicrobatchCut | None = None
    returns_wide_sums: bool = False
    policy: RecomputePolicy = KEEP_EVERYTHING
    pipeline: PipelineNote | None = None

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """The tensors of the block that are stacked."""
        return tuple(part for part, _ in self.stacked)

    def total_dtype(self, term: Tensor) -> tf.DType:
        """The dtype in which the sum of an accumulated tensor is returned."""
        return sum_dtype(term.dtype) if self.returns_wide_sums else term.dtype

    @property
    def body(self) -> Block:
        bound = (*(entering for _, entering, _ in self.carried), *(part for _, part in self.sliced))
        outputs = (*(leaving for _, _, leaving in self.carried), *self.parts, *self.accumulated)
        return Block(self.operations, bound, outputs)

    @property
    def blocks(self) -> tuple[Block, ...]:
        return (self.body,) if self.condition is None else (self.condition, self.body)


class LoopOperation(Operation):
    """Repeats a block. Outputs: the values carried, those stacked, those accumulated, the number of iterations."""

    def __init__(self, spec: LoopSpec, like: Tensor, name: str) -> None:
        captures = list(dict.fromkeys(x for block in spec.blocks for x in block.captures))
        inputs = [*(i for i, _, _ in spec.carried), *(x for x, _ in spec.sliced), *captures]
        inputs += [spec.count] if spec.count is not None else []
        outputs = [(entering.shape, entering.dtype) for _, entering, _ in spec.carried]
        outputs += [(Shape([dim, *part.shape]), part.dtype) for part, dim in spec.stacked]
        outputs += [(t.shape, spec.total_dtype(t)) for t in spec.accumulated]
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

    def gradient_of(self, stacked: Tensor) -> Tensor | None:
        """The sliced tensor whose gradient one of the stacked outputs is, if it is one."""
        return dict(self.spec.gradients).get(self.spec.parts[self.stacked_outputs.index(stacked)])

    def stack(self, part: Tensor) -> Tensor:
        """Makes the loop return one more tensor of its block for all iterations. Returns it, stacked."""
        if part in self.spec.parts:
            return self.stacked_outputs[self.spec.parts.index(part)]
        dim = _iterations_dim(self.spec.dim.size, part.shape)
        added = Tensor(self, Shape([dim, *part.shape]), part.dtype)
        place = len(self.spec.carried) + len(self.spec.stacked)
        self.outputs = (*self.outputs[:place], added, *self.outputs[place:])
        for index, output in enumerate(self.outputs):
            output.index = index
        self.spec = dataclasses.replace(self.spec, stacked=(*self.spec.stacked, (part, dim)))
        self.blocks = self.spec.blocks
        return added

    @property
    def has_gradient(self) -> bool:
        return any(is_differentiable(t.dtype) for t in self.inputs)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return loop_gradient(self, grad_ys)

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        spec = self.spec
        layouts.give({entering: layouts.resolved(initial) for initial, entering, _ in spec.carried})
        layouts.give({part: self._part_layout(x, part, layouts) for x, part in spec.sliced})
        if spec.condition is not None:
            initial = [x for x, _, _ in spec.carried]
            layouts.give({seen: layouts.resolved(x) for seen, x in zip(spec.condition.bound, initial, strict=True)})
        for block in self.blocks:
            layouts.resolve(block.operations)
        stacked = [layouts.resolved(t) for t in spec.parts]
        return [
            *(layouts.resolved(entering) for _, entering, _ in spec.carried),
            *(ResolvedLayout(TensorLayout(((), *own.layout.axes)), own.is_overridden) for own in stacked),
            *(layouts.resolved(t) for t in spec.accumulated),
            layouts.under_rules(Shape([])),
        ]

    def pending_sums(self, layouts: LayoutTable) -> PendingSums:
        """Where the body's sums are done: those of values carried at the end of each iteration."""
        carried = [leaving for _, _, leaving in self.spec.carried]
        return block_sums(self.spec.body, carried, layouts, self.spec.accumulated, max(1, self.spec.dim.size))

    def output_pending_axes(self, layouts: LayoutTable) -> Sequence[tuple[str, ...]]:
        left = self.pending_sums(layouts).left_by([*self.spec.parts, *self.spec.accumulated])
        return [*((),) * len(self.spec.carried), *left, ()]

    def _part_layout(self, x: Tensor, part: Tensor, layouts: LayoutTable) -> ResolvedLayout:
        own = layouts.resolved(x)
        axes = tuple(own.layout.axes[x.shape.axis(d)] for d in part.shape)
        return ResolvedLayout(TensorLayout(axes), own.is_overridden)

    def lower(self, planner: Planner) -> None:
        lower_loop(self, planner)


def _iterations_dim(size: int, part: Shape) -> Dimension:
    """A dimension for what a gradient keeps of all iterations: of a name that the part does not have (it may have the
    loop's own), and that no layout rule splits."""
    name = "(iterations)"
    while part.has(name):
        name = f"({name})"
    return Dimension(name, size)
