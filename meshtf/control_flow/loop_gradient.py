"""The gradient of a loop: a loop the other way, over what the forward loop kept, computing the rest again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from meshtf.autodiff import differentiate
from meshtf.control_flow.blocks import block_input
from meshtf.control_flow.loop import LoopOperation, LoopSpec
from meshtf.control_flow.recomputation import split_kept
from meshtf.errors import GraphError
from meshtf.graph import Operation, Tensor, is_differentiable
from meshtf.lowering.plan import UNBOUNDED
from meshtf.ops.einsum import transpose
from meshtf.ops.inputs import zeros_like


def loop_gradient(loop: LoopOperation, grad_ys: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Gradients of the loop's inputs: initial values, sliced tensors, captures (and None for the count)."""
    if loop.spec.condition is not None and loop.spec.dim.size == UNBOUNDED:
        raise GraphError(
            f"the gradient of {loop.name}, made at {loop.site}, needs to know how many iterations there are at most; "
            f"give mtf.while_loop maximum_iterations"
        )
    return _LoopGradient(loop, grad_ys).result()


@dataclasses.dataclass(frozen=True, eq=False)
class _Backward:
    """The block of the backward loop: the gradients that enter it, and those that leave it."""

    operations: tuple[Operation, ...]
    entering: dict[Tensor, Tensor]
    parts: dict[Tensor, Tensor]
    leaving: dict[Tensor, Tensor]


class _LoopGradient:
    def __init__(self, loop: LoopOperation, grad_ys: Sequence[Tensor | None]) -> None:
        self.loop = loop
        self.spec = loop.spec
        outputs = dict(zip(loop.outputs, grad_ys, strict=False))
        self.carried = [c for c in self.spec.carried if is_differentiable(c[0].dtype)]
        self.carried_grads = {
            entering: outputs[output]
            for (_, entering, _), output in zip(self.spec.carried, loop.carried_outputs, strict=True)
        }
        pairs = zip(self.spec.stacked, loop.stacked_outputs, strict=True)
        self.stacked_grads = {t: g for t, output in pairs if (g := outputs[output]) is not None}
        pairs = zip(self.spec.accumulated, loop.accumulated_outputs, strict=True)
        self.accumulated_grads = {t: g for t, output in pairs if (g := outputs[output]) is not None}
        self.sliced = [(x, part) for x, part in self.spec.sliced if is_differentiable(part.dtype)]
        self.captures = [x for x in loop.captures if is_differentiable(x.dtype)]

    def result(self) -> list[Tensor | None]:
        backward = self._backward()
        loop = self._backward_loop(backward)
        gradients: dict[Tensor, Tensor] = {}
        by_entering = dict(zip((e for _, e, _ in self.carried), loop.carried_outputs, strict=True))
        grads: list[Tensor | None] = [by_entering.get(entering) for _, entering, _ in self.spec.carried]
        parts = [part for _, part in self.sliced if part in backward.leaving]
        by_part = dict(zip(parts, loop.stacked_outputs, strict=False))
        for x, part in self.spec.sliced:
            grads.append(transpose(by_part[part], x.shape) if part in by_part else None)
        captured = [x for x in self.captures if x in backward.leaving]
        gradients.update(zip(captured, loop.accumulated_outputs, strict=True))
        grads += [gradients.get(x) for x in self.loop.captures]
        return grads + [None] * (len(self.loop.inputs) - len(grads))

    def _backward(self) -> _Backward:
        graph = self.loop.graph
        entering = {e: block_input(e, "gradient", None) for _, e, _ in self.carried}
        parts = {t: block_input(t, "gradient", None) for t in self.stacked_grads}
        with graph.capture() as operations:
            ys = [leaving for _, _, leaving in self.carried] + list(parts) + list(self.accumulated_grads)
            grad_ys = [*entering.values(), *parts.values(), *self.accumulated_grads.values()]
            carried = [e for _, e, _ in self.carried]
            xs = [*carried, *(part for _, part in self.sliced), *self.captures]
            found = dict(zip(xs, differentiate(ys, xs, grad_ys, self.spec.operations), strict=True))
            for e in carried:
                if found[e] is None:
                    found[e] = zeros_like(e)
        leaving = {x: g for x, g in found.items() if g is not None}
        return _Backward(tuple(operations), entering, parts, leaving)

    def _backward_loop(self, backward: _Backward) -> LoopOperation:
        given = {entering for _, entering, _ in self.spec.carried} | {part for _, part in self.spec.sliced}
        used = [*(x for o in backward.operations for x in o.inputs), *backward.leaving.values()]
        kept, again = split_kept(used, given, self.spec.operations, self.spec.policy)
        sources = {part: x for x, part in self.spec.sliced}
        sliced = [(sources[t] if t in sources else self.loop.stack(t), t) for t in kept]
        sliced += [(self.stacked_grads[t], part) for t, part in backward.parts.items()]
        carried = tuple(
            (self._initial(entering), backward.entering[entering], backward.leaving[entering])
            for _, entering, _ in self.carried
        )
        spec = LoopSpec(
            dim=self.spec.dim,
            carried=carried,
            sliced=tuple(sliced),
            stacked=tuple(backward.leaving[part] for _, part in self.sliced if part in backward.leaving),
            accumulated=tuple(backward.leaving[x] for x in self.captures if x in backward.leaving),
            operations=(*again, *backward.operations),
            count=self.loop.trips if self.spec.condition is not None else self.spec.count,
            is_reversed=not self.spec.is_reversed,
            policy=self.spec.policy,
        )
        return LoopOperation(spec, self.loop.outputs[0], "loop")

    def _initial(self, entering: Tensor) -> Tensor:
        grad = self.carried_grads[entering]
        return zeros_like(entering) if grad is None else grad
