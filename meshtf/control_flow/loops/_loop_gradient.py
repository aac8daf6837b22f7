"""The gradient of a loop: a loop in reverse order over tensors that the forward loop kept. It recomputes the others.

For h[t+1] = f(h[t], x[t], w), the backward loop carries the gradient of h, from the last step to the first. It reads
h[t] for each step, which the forward loop stacks for it. It returns dx[t] for each step, and sums dw over the steps:

    for t in reversed(range(n)):
        dh, dx[t], dw_t = gradient_of_f(h[t], x[t], w, dh)
        dw += dw_t
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from meshtf.autodiff import differentiate
from meshtf.control_flow._blocks import block_input
from meshtf.control_flow.loops.loop_spec import (
    AccumulatedTensor,
    CarriedTensor,
    Iterations,
    SlicedTensor,
    StackedTensor,
)
from meshtf.control_flow.recompute_policy import KEEP_EVERYTHING, split_kept
from meshtf.errors import GraphError
from meshtf.graph.dtypes import is_differentiable
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.arithmetic import add
from meshtf.ops.algebra.casting import before_cast
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.inputs.constants import zeros_like
from meshtf.ops.variables.variable import Variable
from meshtf.planning.plan import UNBOUNDED

if TYPE_CHECKING:
    from meshtf.control_flow.loops.loop import LoopOperation


def loop_gradient(loop: LoopOperation, grad_ys: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The gradients of the loop's inputs: initial values, sliced tensors, captures, and None for the count.

    Raises:
      GraphError: the loop has a condition, and no maximum number of iterations.
    """
    if loop.spec.iterations.condition is not None and loop.spec.dim.size == UNBOUNDED:
        raise GraphError(
            f"the gradient of {loop.name}, made at {loop.site}, needs to know how many iterations there are at most; "
            f"give mtf.while_loop maximum_iterations"
        )
    return _LoopGradient(loop, grad_ys).result()


@dataclasses.dataclass(frozen=True, eq=False)
class _Backward:
    """The block of the backward loop. Its fields map tensors of the forward loop to gradients.

    leaving: the gradient of everything that the block reads. The loop's result is cast to the dtype of the tensor.
    """

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
            c.entering: outputs[output] for c, output in zip(self.spec.carried, loop.carried_outputs, strict=True)
        }
        self.stacked_grads = self._sums([outputs[y] for y in loop.stacked_outputs], self.spec.stacked_parts)
        self.accumulated_grads = self._sums([outputs[y] for y in loop.accumulated_outputs], self.spec.terms)
        self.carried = self._carried()
        self.sliced = [s for s in self.spec.sliced if is_differentiable(s.part.dtype)]
        self.captures = [x for x in loop.captures if is_differentiable(x.dtype)]

    def _sums(self, grads: Sequence[Tensor | None], tensors: Sequence[Tensor]) -> dict[Tensor, Tensor]:
        """The gradient of each tensor of the block. If the loop returns a tensor twice, its two gradients are added."""
        total: dict[Tensor, Tensor] = {}
        for t, grad in zip(tensors, grads, strict=True):
            if grad is not None:
                own = cast(grad, t.dtype)
                total[t] = add(total[t], own) if t in total else own
        return total

    def _carried(self) -> list[CarriedTensor]:
        """The carried values through which a gradient flows.

        Such a value has a gradient from outside, or affects a result of the block, or affects another such value in a
        later iteration. Because of the last case, the search repeats until it finds no more.
        """
        reached = {*self.stacked_grads, *self.accumulated_grads}
        chosen: set[Tensor] = set()
        while True:
            wanted = {t.operation for t in reached}
            for operation in reversed(self.spec.operations):
                if operation in wanted:
                    wanted.update(x.operation for x in operation.inputs)
            more = {
                c.entering: c.leaving
                for c in self.spec.carried
                if is_differentiable(c.entering.dtype) and c.entering not in chosen
                if c.entering.operation in wanted or self.carried_grads[c.entering] is not None
            }
            if not more:
                return [c for c in self.spec.carried if c.entering in chosen]
            chosen.update(more)
            reached.update(more.values())

    def result(self) -> list[Tensor | None]:
        backward = self._backward()
        loop = self._backward_loop(backward)
        # The backward loop carries gradients of the carried values, and stacks gradients of the sliced tensors.
        by_entering = dict(zip((c.entering for c in self.carried), loop.carried_outputs, strict=True))
        parts = [s.part for s in self.sliced if s.part in backward.leaving]
        by_part = dict(zip(parts, loop.stacked_outputs, strict=False))
        captured = [x for x in self.captures if x in backward.leaving]
        by_capture = dict(zip(captured, loop.accumulated_outputs, strict=True))
        grads: list[Tensor | None] = [by_entering.get(c.entering) for c in self.spec.carried]
        for s in self.spec.sliced:
            whole = transpose(by_part[s.part], s.whole.shape) if s.part in by_part else None
            grads.append(None if whole is None else cast(whole, s.whole.dtype))
        grads += [by_capture.get(x) for x in self.loop.captures]
        return grads + [None] * (len(self.loop.inputs) - len(grads))

    def _backward(self) -> _Backward:
        graph, carried = self.loop.graph, [c.entering for c in self.carried]
        entering = {e: block_input(e, "gradient") for e in carried}
        parts = {t: block_input(t, "gradient") for t in self.stacked_grads}
        beside = [*self.spec.operations, *(t.operation for t in self.spec.body.bound)]
        with graph.capture("a gradient's loop", [*entering.values(), *parts.values()], beside) as operations:
            ys = [c.leaving for c in self.carried] + list(parts) + list(self.accumulated_grads)
            grad_ys = [*entering.values(), *parts.values(), *self.accumulated_grads.values()]
            xs = [*carried, *(s.part for s in self.sliced), *self.captures]
            found = dict(zip(xs, differentiate(ys, xs, grad_ys, self.spec.operations), strict=True))
            for e in carried:
                # A loop needs a value for everything that it carries, even if no gradient flows in an iteration.
                if found[e] is None:
                    found[e] = zeros_like(e)
        leaving = {x: g for x, g in found.items() if g is not None}
        # Casts wait until the loop has ended, because a sum over cores must not wait behind some of them.
        leaving |= {x: before_cast(leaving[x]) for x in self.captures if x in leaving}
        for s in self.sliced:
            if s.part in leaving:
                leaving[s.part] = _to_stack(leaving[s.part], s.whole)
        return _Backward(tuple(operations), entering, parts, leaving)

    def _backward_loop(self, backward: _Backward) -> LoopOperation:
        given = {c.entering for c in self.spec.carried} | {s.part for s in self.spec.sliced}
        used = [*(x for o in backward.operations for x in o.inputs), *backward.leaving.values()]
        wholes = {s.part: s.whole for s in self.spec.sliced}
        # The forward loop stacks some tensors of the body. The others are recomputed from them.
        kept, again = split_kept(used, given, self.spec.operations, self.spec.policy, there=wholes)
        sliced = [SlicedTensor(wholes[t] if t in wholes else self.loop.stack(t), t) for t in kept]
        sliced += [SlicedTensor(self.stacked_grads[t], part) for t, part in backward.parts.items()]
        own, leaving, policy = self.spec.iterations, backward.leaving, self.spec.policy
        # The gradient runs the iterations in reverse order, and only those that took place.
        iterations = Iterations(own.dim, not own.is_reversed, own.count if own.condition is None else self.loop.trips)
        spec = dataclasses.replace(
            self.spec,
            iterations=iterations,
            operations=(*again, *backward.operations),
            carried=tuple(
                CarriedTensor(self._initial(c.entering), backward.entering[c.entering], leaving[c.entering])
                for c in self.carried
            ),
            sliced=tuple(sliced),
            stacked=tuple(StackedTensor(leaving[s.part], s.dim, s.whole) for s in self.sliced if s.part in leaving),
            accumulated=tuple(AccumulatedTensor(leaving[x], x.dtype) for x in self.captures if x in leaving),
            asks_to_be_compiled=False,
            may_overrun=False,
            computes_again=bool(again) and policy != KEEP_EVERYTHING and not policy.only_in_loops,
        )
        return type(self.loop)(spec, self.loop.outputs[0], "loop")

    def _initial(self, entering: Tensor) -> Tensor:
        grad = self.carried_grads[entering]
        return zeros_like(entering) if grad is None else grad


def _to_stack(grad: Tensor, whole: Tensor) -> Tensor:
    """The gradient of a part before its cast. Only a weight's is stacked in a wider dtype, which takes more memory."""
    x = before_cast(grad)
    return x if x.dtype.size <= grad.dtype.size or _is_weight(whole) else grad


def _is_weight(x: Tensor) -> bool:
    """Whether x is a variable in another form: what linear operations make of it."""
    while not isinstance(x.operation, Variable):
        if not x.operation.passes_pending_sums:
            return False
        x = x.operation.inputs[0]
    return True
