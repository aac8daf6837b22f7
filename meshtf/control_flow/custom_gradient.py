"""Functions whose gradient the user gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from meshtf.control_flow.blocks import as_tensors, build
from meshtf.control_flow.inline import InlineOperation
from meshtf.errors import GraphError, ShapeError
from meshtf.graph import Block, Mesh, Tensor, check_tensor, is_differentiable
from meshtf.sites import language_function


class CustomGradientOperation(InlineOperation):
    """A block with a gradient of its own."""

    def __init__(self, block: Block, mesh: Mesh, explicit: Sequence[Tensor], grad_fn: Callable[..., Any]) -> None:
        super().__init__(block, mesh, "custom_gradient", awaited=())
        self._explicit = tuple(explicit)
        self._grad_fn = grad_fn

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        every = self.all_inputs
        returned = self._grad_fn(list(self._explicit), every, list(self.block.operations), list(self.outputs), grad_ys)
        grads = list(returned) if isinstance(returned, list | tuple) else [returned]
        if len(grads) != len(every):
            raise GraphError(
                f"grad_fn returned {len(grads)} gradients for {len(every)} inputs: {', '.join(map(repr, every))}"
            )
        for x, grad in zip(every, grads, strict=True):
            if grad is not None and {*check_tensor(grad).shape} != {*x.shape}:
                raise ShapeError(f"grad_fn returned [{grad.shape}] as the gradient of [{x.shape}]")
        by_input = dict(zip(every, grads, strict=True))
        return [by_input.get(x) for x in self.inputs]

    @property
    def all_inputs(self) -> list[Tensor]:
        """The explicit inputs, then the differentiable tensors from outside that the block uses, in order of use."""
        others = [x for x in self.captures if x not in self._explicit and is_differentiable(x.dtype)]
        return [*self._explicit, *others]


@language_function
def custom_gradient(
    fn: Callable[..., Any], grad_fn: Callable[..., Any], explicit_inputs: Tensor | Sequence[Tensor]
) -> Any:
    """`fn(*explicit_inputs)`, with the gradient that `grad_fn` gives.

    Args:
      fn: returns a tensor or a list of tensors. It is called once.
      grad_fn: `grad_fn(explicit_inputs, all_inputs, forward_operations, outputs, output_grads)` returns a gradient, or
        None, for each of `all_inputs`: the explicit ones, then the tensors and variables from outside that `fn` uses.
      explicit_inputs: arguments of `fn`.

    Raises:
      GraphError, ShapeError: when gradients are taken, if `grad_fn` returns too many, too few, or wrong shapes.
    """
    inputs = [check_tensor(x) for x in ([explicit_inputs] if isinstance(explicit_inputs, Tensor) else explicit_inputs)]
    operations, results = build(inputs[0].mesh, fn, inputs)
    block = Block(operations, (), tuple(as_tensors(results, "fn")))
    made = list(CustomGradientOperation(block, inputs[0].mesh, inputs, grad_fn).outputs)
    return made[0] if isinstance(results, Tensor) else made
