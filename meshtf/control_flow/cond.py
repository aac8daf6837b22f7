"""One of two blocks, by a bool scalar computed in the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from meshtf.autodiff import differentiate
from meshtf.control_flow.blocks import as_tensors, build, has_side_effect
from meshtf.control_flow.recomputation import RecomputePolicy, split_kept
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph import Block, Operation, Tensor, check_tensor, is_differentiable
from meshtf.lowering.layouts import LayoutTable, ResolvedLayout
from meshtf.lowering.planner import Planner
from meshtf.ops.einsum import transpose
from meshtf.ops.inputs import zeros_like
from meshtf.sites import language_function


class CondOperation(Operation):
    """Runs one of two blocks. Inputs: the predicate, then what the blocks use from outside."""

    def __init__(self, predicate: Tensor, if_true: Block, if_false: Block, name: str = "cond") -> None:
        captures = list(dict.fromkeys([*if_true.captures, *if_false.captures]))
        outputs = [(t.shape, t.dtype) for t in if_true.outputs]
        super().__init__([predicate, *captures], outputs, name=name)
        self.captures = captures
        self.blocks = (if_true, if_false)
        self.has_side_effect = has_side_effect(self.blocks)

    @property
    def has_gradient(self) -> bool:
        return any(is_differentiable(t.dtype) for t in self.captures)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        wanted = [x for x in self.captures if is_differentiable(x.dtype)]
        found = [self._branch_gradients(block, wanted, grad_ys) for block in self.blocks]
        used = [i for i in range(len(wanted)) if any(grads[i] is not None for _, grads in found)]
        blocks = [self._backward(operations, grads, wanted, used, block) for block, (operations, grads) in
                  zip(self.blocks, found, strict=True)]  # fmt: skip
        backward = CondOperation(self.inputs[0], *blocks, name="cond")
        by_input = dict(zip((wanted[i] for i in used), backward.outputs, strict=True))
        return [None, *(by_input.get(x) for x in self.captures)]

    def _branch_gradients(
        self, block: Block, wanted: Sequence[Tensor], grad_ys: Sequence[Tensor | None]
    ) -> tuple[list[Operation], list[Tensor | None]]:
        pairs = [(y, g) for y, g in zip(block.outputs, grad_ys, strict=True) if g is not None]
        with self.graph.capture() as operations:
            grads = differentiate([y for y, _ in pairs], wanted, [g for _, g in pairs], block.operations)
        return operations, grads

    def _backward(
        self,
        operations: list[Operation],
        grads: Sequence[Tensor | None],
        wanted: Sequence[Tensor],
        used: Sequence[int],
        block: Block,
    ) -> Block:
        with self.graph.capture() as added:
            outputs = tuple(grads[i] if grads[i] is not None else zeros_like(wanted[i]) for i in used)
        needed = [*(x for o in operations for x in o.inputs), *outputs]
        # A branch leaves nothing behind: its gradient computes it again.
        _, again = split_kept(needed, set(), block.operations, RecomputePolicy("nothing"))
        return Block((*again, *operations, *added), (), outputs)  # type: ignore[arg-type]

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        for block in self.blocks:
            layouts.resolve(block.operations)
        return [layouts.resolved(t) for t in self.blocks[0].outputs]

    def lower(self, planner: Planner) -> None:
        from meshtf.lowering.loops import lower_branch

        lower_branch(self, planner)


@language_function
def cond(
    predicate: Tensor, true_fn: Callable[[], Any], false_fn: Callable[[], Any], name: str = "cond"
) -> list[Tensor]:
    """The results of `true_fn()` where `predicate` holds, else those of `false_fn()`. Only one of them runs.

    Args:
      predicate: a bool scalar.
      true_fn: returns any number of tensors; both functions are called once, while the graph is built, and may use
        tensors from outside and read and assign variables.
      false_fn: returns tensors of the same shapes and dtypes.
      name: of the operation.

    Raises:
      DtypeError: the predicate is no bool scalar, or results differ in dtype.
      ShapeError: results differ in number or shape.
    """
    check_tensor(predicate, "predicate")
    if predicate.dtype != tf.bool or predicate.shape.ndims:
        raise DtypeError(f"the predicate must be a bool scalar, and is {predicate!r}")
    blocks = []
    for fn, what in ((true_fn, "true_fn"), (false_fn, "false_fn")):
        operations, results = build(predicate.mesh, fn, [])
        blocks.append((list(operations), as_tensors(results, what)))
    (_, first), (second_operations, second) = blocks
    if len(first) != len(second):
        raise ShapeError(f"true_fn returned {len(first)} tensors and false_fn {len(second)}")
    with predicate.graph.capture() as added:
        second = [_like(b, a) for a, b in zip(first, second, strict=True)]
    second_operations += added
    made = [Block(tuple(o), (), tuple(t)) for o, t in ((blocks[0][0], first), (second_operations, second))]
    return list(CondOperation(predicate, *made, name=name).outputs)


def _like(x: Tensor, wanted: Tensor) -> Tensor:
    if {*x.shape} != {*wanted.shape}:
        raise ShapeError(f"true_fn returned [{wanted.shape}] where false_fn returned [{x.shape}]")
    if x.dtype != wanted.dtype:
        raise DtypeError(f"true_fn returned {wanted.dtype.name} where false_fn returned {x.dtype.name}")
    return transpose(x, wanted.shape)
