"""Recomputation: the backward pass recomputes tensors that the forward pass did not keep.

Chen, Xu, Zhang, Guestrin, "Training deep nets with sublinear memory cost" (2016). For y = tanh(square(x)), the gradient
needs the result of tanh and x. With "nothing", the program keeps only x, and the backward pass recomputes square and
tanh.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshtf.autodiff import differentiate
from meshtf.call_sites import language_function
from meshtf.control_flow._blocks import as_tensors, build_block, explicit_tensors, gradients_by_input
from meshtf.control_flow._elements import Elements
from meshtf.control_flow._inline_block import InlineOperation
from meshtf.control_flow.notes import NotesOfBlock
from meshtf.control_flow.recompute_policy import RecomputePolicy, split_kept, unnested_policy
from meshtf.graph.blocks import Block
from meshtf.graph.dtypes import is_differentiable
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.casting import before_cast, converted


class RecomputeOperation(InlineOperation):
    """A block whose gradient keeps only the tensors that a policy selects."""

    def __init__(
        self,
        block: Block,
        mesh: Mesh,
        policy: RecomputePolicy,
        name: str,
        given: Sequence[tuple[Tensor, Tensor]] = (),
        awaited: Sequence[Tensor] = (),
        explicit: Sequence[Tensor] = (),
    ) -> None:
        super().__init__(block, mesh, name, given, awaited, explicit)
        self.policy = policy

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        forward, outputs = self.block.operations, self.block.outputs
        outside_of = {inside: outside for outside, inside in self.given}
        pairs = [(y, g) for y, g in zip(outputs, grad_ys, strict=True) if g is not None]
        wanted = [x for x in [*self.captures, *outside_of] if is_differentiable(x.dtype)]
        beside = [*forward, *(t.operation for t in outside_of)]
        # The gradient is built as if every result of the forward pass were kept. Then the policy selects which are.
        with self.graph.capture("a gradient", beside=beside) as operations:
            grads = differentiate([y for y, _ in pairs], wanted, [g for _, g in pairs], forward)
        # Casts are done outside, because a sum over cores must not wait behind some of them.
        found = [(x, before_cast(g)) for x, g in zip(wanted, grads, strict=True) if g is not None]
        used = [*(x for o in operations for x in o.inputs), *(g for _, g in found)]
        kept, again = split_kept(used, set(outside_of), forward, self.policy)
        block = Block((*again, *operations), tuple(kept), tuple(g for _, g in found))
        given = [(outside_of[t] if t in outside_of else self.keep(t), t) for t in kept]
        # Recomputation waits for the gradients. Otherwise it could run early, and its results would take memory.
        awaited = [g for _, g in pairs] if again else []
        backward = RecomputeOperation(block, self.mesh, self.policy, "recompute_grad", given, awaited, self.explicit)
        outputs = [converted(g, x.dtype) for (x, _), g in zip(found, backward.outputs, strict=True)]
        return gradients_by_input(self.inputs, [outside_of.get(x, x) for x, _ in found], outputs)

    def for_all(self, elements: Elements) -> RecomputeOperation:
        _, block, given = self.block_for_all(elements)
        awaited, explicit = ([elements.get(x) for x in xs] for xs in (self.awaited, self.explicit))
        return RecomputeOperation(block, self.mesh, self.policy, self.name, given, awaited, explicit)


@language_function
def recompute_grad(
    fn: Callable[..., Any],
    explicit_inputs: Tensor | Sequence[Tensor],
    recompute: RecomputePolicy | str | bool | None = True,
    name: str = "recompute_grad",
) -> Any:
    """`fn(*explicit_inputs)`, whose gradient recomputes the tensors that `recompute` does not keep.

    Args:
      fn: returns a tensor or a list of tensors. It is called once. It may use outer tensors and variables. Recomputed
        random operations return the same bits.
      explicit_inputs: its arguments.
      recompute: what is kept: "nothing" (True), "products", "everything", or a `RecomputePolicy`.
      name: the operation's name.

    Examples:
      >>> (y,) = mtf.recompute_grad(lambda x: [mtf.tanh(mtf.square(x))], [x])
      >>> mtf.gradients([y], [x])
      [gradients/recompute_grad [batch:4 hidden:8] float32]
    """
    inputs = explicit_tensors(explicit_inputs)
    policy = unnested_policy(recompute)
    notes = NotesOfBlock(inputs[0].graph)
    what = "the function of mtf.recompute_grad"
    operations, (results, noted) = build_block(inputs[0].mesh, notes.collected(fn), inputs, what)
    policy.check(operations)
    block = Block(operations, (), (*as_tensors(results, "the function"), *noted))
    operation = RecomputeOperation(block, inputs[0].mesh, policy, name, explicit=inputs)
    made = notes.handed_on(operation.outputs)
    return made[0] if isinstance(results, Tensor) else made
