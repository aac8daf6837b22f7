"""`cond` runs one of two blocks, chosen by a bool scalar that the program computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from meshtf.autodiff import differentiate
from meshtf.call_sites import language_function
from meshtf.control_flow._blocks import as_tensors, build_block, gradients_by_input, has_side_effect, overrides_layout
from meshtf.control_flow._cond_lowering import lower_branch
from meshtf.control_flow._elements import Elements, inputs_for_all
from meshtf.control_flow.recompute_policy import RecomputePolicy, split_kept
from meshtf.errors import DtypeError, ShapeError, counted
from meshtf.graph.blocks import Block
from meshtf.graph.dtypes import is_differentiable
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.inputs.constants import zeros_like
from meshtf.planning.layouts.layout_table import LayoutTable, ResolvedLayout
from meshtf.planning.planner import Planner


class CondOperation(Operation):
    """Runs one of two blocks. Its inputs are the predicate, then the outer tensors that the blocks use.

    `given` pairs tensors of the program with block inputs.
    """

    takes_padding = True

    def __init__(
        self, predicate: Tensor, if_true: Block, if_false: Block, given: Sequence[tuple[Tensor, Tensor]] = ()
    ) -> None:
        self.blocks = (if_true, if_false)
        self.given = tuple(given)
        self.captures = list(dict.fromkeys([*if_true.captures, *if_false.captures]))
        inputs = dict.fromkeys([predicate, *self.captures, *(x for x, _ in given)])
        super().__init__(list(inputs), [(t.shape, t.dtype) for t in if_true.outputs], name="cond")
        self.blocks = (if_true, if_false)
        self.has_side_effect = has_side_effect(self.blocks)
        self.overrides_layout |= overrides_layout(self.blocks)

    @property
    def has_gradient(self) -> bool:
        return any(is_differentiable(t.dtype) for t in self.inputs)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        outside_of = {inside: outside for outside, inside in self.given}
        wanted = [x for x in [*self.captures, *outside_of] if is_differentiable(x.dtype)]
        ys = [block.outputs for block in self.blocks]
        found = [self._branch_gradients(block, wanted, list(zip(ys[i], grad_ys, strict=True)))
                 for i, block in enumerate(self.blocks)]  # fmt: skip
        # Both branches must return the same tensors. An input counts if either branch has a gradient for it.
        used = [i for i in range(len(wanted)) if any(grads[i] is not None for _, grads in found)]
        if not used:
            return [None] * len(self.inputs)
        given: list[tuple[Tensor, Tensor]] = []
        blocks = []
        for side, (operations, grads) in enumerate(found):
            block, kept = self._backward(operations, [(wanted[i], grads[i]) for i in used], side)
            blocks.append(block)
            given += [(outside_of[t] if t in outside_of else self._keep(t, side), t) for t in kept]
        backward = CondOperation(self.inputs[0], blocks[0], blocks[1], given)
        return gradients_by_input(self.inputs, [outside_of.get(wanted[i], wanted[i]) for i in used], backward.outputs)

    def _branch_gradients(
        self, block: Block, wanted: Sequence[Tensor], outputs: Sequence[tuple[Tensor, Tensor | None]]
    ) -> tuple[list[Operation], list[Tensor | None]]:
        pairs = [(y, g) for y, g in outputs if g is not None]
        beside = [*block.operations, *(t.operation for _, t in self.given)]
        with self.graph.capture("a gradient's branch", beside=beside) as operations:
            grads = differentiate([y for y, _ in pairs], wanted, [g for _, g in pairs], block.operations)
        return operations, grads

    def _backward(
        self, operations: list[Operation], grads: Sequence[tuple[Tensor, Tensor | None]], side: int
    ) -> tuple[Block, list[Tensor]]:
        """A branch of the gradient, and the tensors that it needs as inputs."""
        forward = self.blocks[side].operations
        with self.graph.capture("a gradient's branch") as added:
            outputs = tuple(zeros_like(x) if grad is None else grad for x, grad in grads)
        needed = [*(x for o in operations for x in o.inputs), *outputs]
        # The forward branch keeps only tensors that depend on when they are computed, such as a variable's value. The
        # gradient's branch computes the rest again.
        kept, again = split_kept(needed, {t for _, t in self.given}, forward, RecomputePolicy("nothing"))
        return Block((*again, *operations, *added), tuple(kept), outputs), kept

    def _keep(self, tensor: Tensor, side: int) -> Tensor:
        """Makes the operation return one more tensor of one branch. The other branch returns zeros for it."""
        with self.graph.capture("a branch not taken") as added:
            zeros = zeros_like(tensor)
        blocks = list(self.blocks)
        own, other = blocks[side], blocks[1 - side]
        blocks[side] = Block(own.operations, own.bound, (*own.outputs, tensor))
        blocks[1 - side] = Block((*other.operations, *added), other.bound, (*other.outputs, zeros))
        # The output is added after construction, because only the gradient shows which tensors it needs.
        self.blocks = (blocks[0], blocks[1])
        self.outputs = (*self.outputs, Tensor(self, tensor.shape, tensor.dtype, len(self.outputs)))
        return self.outputs[-1]

    def for_all(self, elements: Elements) -> CondOperation:
        predicate = elements.same(self.inputs[0])
        if predicate is None:
            elements.refuse(self, "its predicate differs between elements; mtf.where chooses for each")
        bound = inputs_for_all(self.given, elements)
        blocks = []
        for block in self.blocks:
            own = {x: bound[x] for x in block.bound}
            inside, operations = elements.inside(block.operations, own, block.outputs)
            blocks.append(Block(operations, tuple(own.values()), tuple(map(inside.of_all, block.outputs))))
        given = [(elements.given(outside), bound[own]) for outside, own in self.given]
        return CondOperation(predicate, blocks[0], blocks[1], given)

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        layouts.give({inside: layouts.resolved(outside) for outside, inside in self.given})
        for block in self.blocks:
            layouts.resolve(block.operations)
        return [layouts.resolved(t) for t in self.blocks[0].outputs]

    def lower(self, planner: Planner) -> None:
        lower_branch(self, planner)


@language_function
def cond(predicate: Tensor, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> list[Tensor]:
    """The results of `true_fn()` if `predicate` is true, else of `false_fn()`. Only one of them runs.

    Args:
      predicate: a bool scalar.
      true_fn: returns any number of tensors. Both functions are called once, while the graph is built. They may use
        outer tensors, and may read and assign variables.
      false_fn: returns tensors of the same shapes and dtypes.

    Raises:
      DtypeError: the predicate is not a bool scalar, or results differ in dtype.
      ShapeError: results differ in number or shape.

    Examples:
      >>> (y,) = mtf.cond(mtf.reduce_sum(x) > 0.0, lambda: x, lambda: mtf.zeros_like(x))
      >>> y
      cond [batch:4 hidden:8] float32
    """
    check_tensor(predicate, "predicate")
    if predicate.dtype != tf.bool or predicate.shape.ndims:
        raise DtypeError(f"the predicate must be a bool scalar, and is {predicate!r}")
    blocks = []
    for fn, what in ((true_fn, "true_fn"), (false_fn, "false_fn")):
        operations, results = build_block(predicate.mesh, fn, [], f"{what} of mtf.cond")
        blocks.append((list(operations), as_tensors(results, what)))
    (_, first), (second_operations, second) = blocks
    if len(first) != len(second):
        raise ShapeError(f"true_fn returned {counted(len(first), 'tensor')} and false_fn {len(second)}")
    with predicate.graph.capture("a branch", beside=second_operations) as added:
        second = [_like(b, a) for a, b in zip(first, second, strict=True)]
    second_operations += added
    made = [Block(tuple(o), (), tuple(t)) for o, t in ((blocks[0][0], first), (second_operations, second))]
    return list(CondOperation(predicate, made[0], made[1]).outputs)


def _like(x: Tensor, wanted: Tensor) -> Tensor:
    if {*x.shape} != {*wanted.shape}:
        raise ShapeError(f"true_fn returned [{wanted.shape}] where false_fn returned [{x.shape}]")
    if x.dtype != wanted.dtype:
        raise DtypeError(f"true_fn returned {wanted.dtype.name} where false_fn returned {x.dtype.name}")
    return transpose(x, wanted.shape)
