"""`custom_gradient`: functions with a user-defined gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from meshtf.autodiff import differentiate
from meshtf.call_sites import language_function
from meshtf.control_flow._blocks import as_tensors, block_input, build_block, explicit_tensors, gradients_by_input
from meshtf.control_flow._elements import Elements
from meshtf.control_flow._inline_block import InlineOperation
from meshtf.control_flow.recompute_grad import RecomputeOperation
from meshtf.control_flow.recompute_policy import KEEP_EVERYTHING
from meshtf.errors import DtypeError, GraphError, ShapeError, counted
from meshtf.graph.blocks import Block
from meshtf.graph.dtypes import is_differentiable
from meshtf.graph.mesh import Mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.arithmetic import add
from meshtf.ops.algebra.reduction import reduce_sum
from meshtf.ops.algebra.transpose_and_broadcast import transpose


class CustomGradientOperation(InlineOperation):
    """A block with a gradient of its own."""

    def __init__(
        self,
        block: Block,
        mesh: Mesh,
        explicit: Sequence[Tensor],
        grad_fn: Callable[..., Any],
        *,
        computes_again: bool,
    ) -> None:
        super().__init__(block, mesh, "custom_gradient", explicit=explicit, others=explicit)
        self._grad_fn = grad_fn
        self._computes_again = computes_again
        self._num_results = len(block.outputs)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """The user's gradients, computed in a block.

        The block takes as inputs the results of forward operations that it uses. A second derivative needs gradients
        of these results, too; for it, the forward operations are differentiated as usual.
        """
        forward, every, n = self.block.operations, self.all_inputs, self._num_results
        asked = [(t, g) for t, g in zip(self.block.outputs[n:], grad_ys[n:], strict=True) if g is not None]
        with self.graph.capture("grad_fn of mtf.custom_gradient", beside=forward) as operations:
            # The user's gradient is for the function's results only. Kept tensors have gradients only in second
            # derivatives.
            grads: list[Tensor | None] = [None] * len(every)
            if any(g is not None for g in grad_ys[:n]):
                outputs = list(self.outputs[:n])
                grads = self._checked(
                    self._grad_fn(list(self.explicit), every, list(forward), outputs, list(grad_ys[:n]))
                )
            if asked:
                further = differentiate([t for t, _ in asked], every, [g for _, g in asked], forward)
                grads = [x if y is None else y if x is None else add(x, y) for x, y in zip(grads, further, strict=True)]
        found = [(x, g) for x, g in zip(every, grads, strict=True) if g is not None]
        inside = {t for o in forward for t in o.outputs}
        used = dict.fromkeys([*(x for o in operations for x in o.inputs), *(g for _, g in found)])
        given = [(self.keep(t), t) for t in used if t in inside]
        block = Block(tuple(operations), tuple(t for _, t in given), tuple(g for _, g in found))
        awaited = list(dict.fromkeys(g for g in grad_ys if g is not None)) if self._computes_again else []
        policy, name = KEEP_EVERYTHING, "custom_gradient"
        backward = RecomputeOperation(block, self.mesh, policy, name, given, awaited, self.explicit)
        return gradients_by_input(self.inputs, [x for x, _ in found], backward.outputs)

    def for_all(self, elements: Elements) -> CustomGradientOperation:
        inside, block, _ = self.block_for_all(elements)
        explicit = [elements.get(x) for x in self.explicit]
        grad_fn = functools.partial(self._gradients_for_all, inside)
        made = CustomGradientOperation(block, self.mesh, explicit, grad_fn, computes_again=self._computes_again)
        made._num_results = self._num_results
        return made

    def _gradients_for_all(
        self,
        inside: Elements,
        explicit: list[Tensor],
        every: list[Tensor],
        forward: list[Operation],
        outputs: list[Tensor],
        output_grads: list[Tensor | None],
    ) -> list[Tensor | None]:
        """Calls the user's function with tensors of one element, and makes its operations again for all elements.

        The gradient of an input that is the same for all elements is a sum over them.
        """
        own, inputs = self.outputs[: self._num_results], self.all_inputs
        grads = [None if g is None else block_input(y, "gradient") for y, g in zip(own, output_grads, strict=True)]
        given = {x: g for x, g in zip(grads, output_grads, strict=True) if x is not None and g is not None}
        beside = [self, *self.block.operations, *(x.operation for x in inputs)]
        with self.graph.capture("grad_fn of mtf.custom_gradient", given, beside) as operations:
            returned = self._grad_fn(list(self.explicit), inputs, list(self.block.operations), list(own), grads)
            found = self._checked(returned)
        elements = inside.beside({**dict(zip(own, outputs, strict=True)), **given})
        for operation in operations:
            elements.make_again(operation)
        totals: list[Tensor | None] = [None] * len(every)
        for i, (x, g) in enumerate(zip(inputs, found, strict=True)):
            if g is not None:
                # An outer tensor that is the same for all may be captured with the dimension, without it, or both.
                forms = (inside.get(x), inside.same(x))
                places = [i] if i < len(explicit) else [j for j, y in enumerate(every) if y in forms]
                for place in places[:1]:
                    totals[place] = reduce_sum(elements.of_all(g), output_shape=every[place].shape)
        return totals

    def _checked(self, returned: Any) -> list[Tensor | None]:
        every = self.all_inputs
        grads = list(returned) if isinstance(returned, list | tuple) else [returned]
        if len(grads) != len(every):
            raise GraphError(
                f"grad_fn returned {counted(len(grads), 'gradient')} for {counted(len(every), 'input')}: "
                f"{', '.join(map(repr, every))}"
            )
        return [
            None if grad is None else _like(check_tensor(grad, "gradient"), x)
            for x, grad in zip(every, grads, strict=True)
        ]

    @property
    def all_inputs(self) -> list[Tensor]:
        """The explicit inputs, then the differentiable outer tensors that the block uses, in order of use."""
        others = [x for x in self.captures if x not in self.explicit and is_differentiable(x.dtype)]
        return [*self.explicit, *others]


@language_function
def custom_gradient(
    fn: Callable[..., Any],
    grad_fn: Callable[..., Any],
    explicit_inputs: Tensor | Sequence[Tensor],
    *,
    computes_again: bool = False,
) -> Any:
    """`fn(*explicit_inputs)`, with the gradient that `grad_fn` returns.

    Args:
      fn: returns a tensor or a list of tensors. It is called once.
      grad_fn: `grad_fn(explicit_inputs, all_inputs, forward_operations, outputs, output_grads)` returns a gradient, or
        None, for each of `all_inputs`: the explicit ones, even if `fn` does not use them, then the outer tensors and
        variables that `fn` uses. It may use the outputs of the forward operations. In `output_grads`, None stands for
        an output that has no gradient.
      explicit_inputs: arguments of `fn`.
      computes_again: whether `grad_fn` recomputes results of `fn` to save memory. A compiler then does not merge the
        two computations, and keeps only the tensors that `grad_fn` uses.

    Raises:
      GraphError, ShapeError, DtypeError: `grad_fn` returns too many or too few gradients, or one that does not
        fit its input.

    Examples:
      >>> def as_if_not_rounded(explicit_inputs, all_inputs, forward_operations, outputs, output_grads):
      ...     return output_grads
      >>> n = mtf.constant(mesh, [0.4, 0.6], "n:2")
      >>> y = mtf.custom_gradient(mtf.round, as_if_not_rounded, [n])
      >>> value(mtf.gradients([y], [n])[0])
      array([1., 1.], dtype=float32)
    """
    inputs = explicit_tensors(explicit_inputs)
    operations, results = build_block(inputs[0].mesh, fn, inputs, "the function of mtf.custom_gradient")
    block = Block(operations, (), tuple(as_tensors(results, "fn")))
    mesh = inputs[0].mesh
    made = list(CustomGradientOperation(block, mesh, inputs, grad_fn, computes_again=computes_again).outputs)
    return made[0] if isinstance(results, Tensor) else made


def _like(grad: Tensor, x: Tensor) -> Tensor:
    if {*grad.shape} != {*x.shape}:
        raise ShapeError(f"grad_fn returned [{grad.shape}] as the gradient of [{x.shape}]")
    if grad.dtype != x.dtype:
        raise DtypeError(f"grad_fn returned {grad.dtype.name} as the gradient of {x!r}; convert with mtf.cast")
    return transpose(grad, x.shape)
