"""An operation that runs a block in place. Recomputation and custom gradients are subclasses of it."""

from __future__ import annotations

from collections.abc import Sequence

from meshtf.control_flow._blocks import has_side_effect, overrides_layout
from meshtf.control_flow._elements import Elements, inputs_for_all
from meshtf.control_flow._inline_block_lowering import lower_inline
from meshtf.graph.blocks import Block
from meshtf.graph.dtypes import is_differentiable
from meshtf.graph.mesh import Mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.planning.layouts.layout_table import LayoutTable, ResolvedLayout
from meshtf.planning.pending_sums import PendingSums, block_sums
from meshtf.planning.planner import Planner


class InlineOperation(Operation):
    """Runs a block once, in place.

    `given` pairs tensors of the program with block inputs. The block can use no outer tensor before all of `awaited`
    are computed. In programs for XLA, only the tensors of `given` and `explicit` wait; `explicit` are the arguments of
    the user's function, from which its gradient recomputes. `others` are inputs that may have a gradient even if the
    block does not use them.
    """

    takes_padding = True

    def __init__(
        self,
        block: Block,
        mesh: Mesh,
        name: str,
        given: Sequence[tuple[Tensor, Tensor]] = (),
        awaited: Sequence[Tensor] = (),
        explicit: Sequence[Tensor] = (),
        others: Sequence[Tensor] = (),
    ) -> None:
        self.captures = block.captures
        inputs = list(dict.fromkeys([*self.captures, *(x for x, _ in given), *awaited, *others]))
        super().__init__(inputs, [(t.shape, t.dtype) for t in block.outputs], name=name, mesh=mesh)
        self.block = block
        self.blocks = (block,)
        self.given = tuple(given)
        self.awaited = tuple(awaited)
        self.explicit = tuple(explicit)
        self.has_side_effect = has_side_effect(self.blocks)
        self.overrides_layout |= overrides_layout(self.blocks)

    @property
    def has_gradient(self) -> bool:
        return any(is_differentiable(t.dtype) for t in self.inputs)

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        layouts.give({inside: layouts.resolved(outside) for outside, inside in self.given})
        layouts.resolve(self.block.operations)
        return [layouts.resolved(t) for t in self.block.outputs]

    def pending_sums(self, layouts: LayoutTable) -> PendingSums:
        """Says where the block's sums over cores are done. Sums of its outputs may be left to their readers."""
        return block_sums(self.block, (), layouts)

    def output_pending_axes(self, layouts: LayoutTable) -> Sequence[tuple[str, ...]]:
        return self.pending_sums(layouts).left_by(self.block.outputs)

    def keep(self, tensor: Tensor) -> Tensor:
        """Returns a tensor of the block as an output, added if it is not one yet."""
        if tensor in self.block.outputs:
            return self.outputs[self.block.outputs.index(tensor)]
        added = Tensor(self, tensor.shape, tensor.dtype, len(self.outputs))
        self.outputs = (*self.outputs, added)
        self.block = Block(self.block.operations, self.block.bound, (*self.block.outputs, tensor))
        self.blocks = (self.block,)
        return added

    def block_for_all(self, elements: Elements) -> tuple[Elements, Block, list[tuple[Tensor, Tensor]]]:
        """The tensors inside the block, the block and `given`, made again for all elements."""
        bound = inputs_for_all(self.given, elements)
        inside, operations = elements.inside(self.block.operations, bound, self.block.outputs)
        outputs = tuple(map(inside.of_all, self.block.outputs))
        given = [(elements.given(outside), bound[own]) for outside, own in self.given]
        return inside, Block(operations, tuple(bound.values()), outputs), given

    def lower(self, planner: Planner) -> None:
        lower_inline(self, planner)
