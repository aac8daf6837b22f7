"""The gradient of a loop: a loop the other way, over what the forward loop kept, computing the rest again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from meshtf.autodiff import differentiate
from meshtf.control_flow.blocks import block_input
from meshtf.control_flow.recomputation import split_kept
from meshtf.dimension import Dimension
from meshtf.errors import GraphError
from meshtf.graph import Operation, Tensor, is_differentiable
from meshtf.ops.algebra.arithmetic import add
from meshtf.ops.algebra.spread import transpose
from meshtf.ops.elementwise.elementwise import cast
from meshtf.ops.inputs.inputs import zeros_like
from meshtf.planning.plan import UNBOUNDED

if TYPE_CHECKING:
    from meshtf.control_flow.loop import LoopOperation


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
        self.carried_grads = {
            entering: outputs[output]
            for (_, entering, _), output in zip(self.spec.carried, loop.carried_outputs, strict=True)
        }
        self.stacked_grads = self._sums([outputs[y] for y in loop.stacked_outputs], self.spec.parts)
        self.accumulated_grads = self._sums([outputs[y] for y in loop.accumulated_outputs], self.spec.accumulated)
        self.carried = self._carried()
        self.sliced = [(x, part) for x, part in self.spec.sliced if is_differentiable(part.dtype)]
        self.captures = [x for x in loop.captures if is_differentiable(x.dtype)]

    def _sums(self, grads: Sequence[Tensor | None], tensors: Sequence[Tensor]) -> dict[Tensor, Tensor]:
        """The gradient of each tensor of the block; one that the loop returns twice has two parts."""
        total: dict[Tensor, Tensor] = {}
        for t, grad in zip(tensors, grads, strict=True):
            if grad is not None:
                own = cast(grad, t.dtype)
                total[t] = add(total[t], own) if t in total else own
        return total

    def _carried(self) -> list[tuple[Tensor, Tensor, Tensor]]:
        """The values carried through which a gradient flows: from one of them, or what is returned, to the end."""
        reached = {*self.stacked_grads, *self.accumulated_grads}
        chosen: set[Tensor] = set()
        while True:
            wanted = {t.operation for t in reached}
            for operation in reversed(self.spec.operations):
                if operation in wanted:
                    wanted.update(x.operation for x in operation.inputs)
            more = {
                entering: leaving
                for _, entering, leaving in self.spec.carried
                if is_differentiable(entering.dtype) and entering not in chosen
                if entering.operation in wanted or self.carried_grads[entering] is not None
            }
            if not more:
                return [c for c in self.spec.carried if c[1] in chosen]
            chosen.update(more)
            reached.update(more.values())

    def result(self) -> list[Tensor | None]:
        backward = self._backward()
        loop = self._backward_loop(backward)
        by_entering = dict(zip((e for _, e, _ in self.carried), loop.carried_outputs, strict=True))
        parts = [part for _, part in self.sliced if part in backward.leaving]
        by_part = dict(zip(parts, loop.stacked_outputs, strict=False))
        captured = [x for x in self.captures if x in backward.leaving]
        by_capture = dict(zip(captured, loop.accumulated_outputs, strict=True))
        grads: list[Tensor | None] = [by_entering.get(entering) for _, entering, _ in self.spec.carried]
        for x, part in self.spec.sliced:
            grads.append(transpose(by_part[part], x.shape) if part in by_part else None)
        grads += [by_capture.get(x) for x in self.loop.captures]
        return grads + [None] * (len(self.loop.inputs) - len(grads))

    def _backward(self) -> _Backward:
        graph, carried = self.loop.graph, [e for _, e, _ in self.carried]
        entering = {e: block_input(e, "gradient") for e in carried}
        parts = {t: block_input(t, "gradient") for t in self.stacked_grads}
        beside = [*self.spec.operations, *(t.operation for t in self.spec.body.bound)]
        with graph.capture("a gradient's loop", [*entering.values(), *parts.values()], beside) as operations:
            ys = [leaving for _, _, leaving in self.carried] + list(parts) + list(self.accumulated_grads)
            grad_ys = [*entering.values(), *parts.values(), *self.accumulated_grads.values()]
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
        spec = dataclasses.replace(
            self.spec,
            carried=carried,
            sliced=tuple(sliced),
            stacked=tuple((backward.leaving[p], _lacked(x, p)) for x, p in self.sliced if p in backward.leaving),
            gradients=tuple((backward.leaving[p], x) for x, p in self.sliced if p in backward.leaving),
            accumulated=tuple(backward.leaving[x] for x in self.captures if x in backward.leaving),
            operations=(*again, *backward.operations),
            condition=None,
            count=self.loop.trips if self.spec.condition is not None else self.spec.count,
            is_reversed=not self.spec.is_reversed,
            returns_wide_sums=False,
        )
        return type(self.loop)(spec, self.loop.outputs[0], "loop")

    def _initial(self, entering: Tensor) -> Tensor:
        grad = self.carried_grads[entering]
        return zeros_like(entering) if grad is None else grad


def _lacked(x: Tensor, part: Tensor) -> Dimension:
    """The dimension of a sliced tensor that its part lacks."""
    return next(d for d in x.shape if not part.shape.has(d.name))
