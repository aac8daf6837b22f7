"""Builds blocks: collects the operations that a Python function makes, separate from the enclosing program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.errors import GraphError
from meshtf.graph.blocks import Block, with_nested
from meshtf.graph.mesh import Mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensors
from meshtf.ops.algebra.arithmetic import add
from meshtf.ops.variables.variable import Assign, ReadVariable
from meshtf.planning.layouts.layout_table import LayoutTable, ResolvedLayout
from meshtf.planning.planner import Planner


class BlockInputOperation(Operation):
    """An input of a block.

    The operation that contains the block determines the layout and the value of this tensor.
    """

    takes_padding = True

    def __init__(self, mesh: Mesh, shape: Shape, dtype: tf.DType, name: str) -> None:
        # The capture keeps it out of every list of operations, since its value comes from outside the block.
        with mesh.graph.capture():
            super().__init__([], [(shape, dtype)], name=name, mesh=mesh)

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        return [layouts.given(self.outputs[0])]

    def lower(self, planner: Planner) -> None:
        raise AssertionError(f"{self.name} is given to its block, not lowered")


def block_input(like: Tensor, name: str, shape: Shape | None = None) -> Tensor:
    """Makes an input for a block, with the dtype of `like`, and with its shape unless `shape` is given."""
    own = BlockInputOperation(like.mesh, like.shape if shape is None else shape, like.dtype, name)
    own.overrides_layout = like.is_overridden
    own.source = like
    return own.outputs[0]


def build_block(
    mesh: Mesh, fn: Callable[..., Any], arguments: Sequence[Any], what: str, given: Sequence[Tensor] = ()
) -> tuple[tuple[Operation, ...], Any]:
    """Returns the operations that `fn(*arguments)` makes, and its result.

    `what` names the block in messages. `given` are the block inputs among the arguments; the enclosing operation sets
    their values.
    """
    if not callable(fn):
        raise GraphError(f"{what} must be a function of mtf.Tensors, and is {fn!r}")
    with mesh.graph.capture(what, given) as operations:
        results = fn(*arguments)
    return tuple(operations), results


def explicit_tensors(inputs: Tensor | Sequence[Tensor]) -> list[Tensor]:
    """The arguments of a function that becomes a block.

    Raises:
      GraphError: there are no arguments.
    """
    listed = check_tensors(inputs)
    if not listed:
        raise GraphError("explicit_inputs is empty; give at least one tensor that the function is called with")
    return listed


def as_tensors(results: Any, what: str) -> list[Tensor]:
    """The results of a block's function, as a list of tensors.

    Raises:
      GraphError: a result is no tensor.
    """
    listed = [] if results is None else list(results) if isinstance(results, list | tuple) else [results]
    for result in listed:
        if not isinstance(result, Tensor):
            raise GraphError(f"{what} must return mtf.Tensors, and returned {type(result).__name__}")
    return listed


def has_side_effect(blocks: Sequence[Block]) -> bool:
    return any(o.has_side_effect for block in blocks for o in block.operations)


def overrides_layout(blocks: Sequence[Block]) -> bool:
    """Whether a block overrides a layout. The block's results may then have that layout."""
    return any(o.overrides_layout for block in blocks for o in block.operations)


def reads_or_assigns_state(operation: Operation) -> bool:
    """Whether running the operation again later could have another result or effect.

    It could if the operation assigns a variable, or reads one that the program assigns.
    """
    inside = list(with_nested([operation]))
    if any(isinstance(o, Assign) for o in inside):
        return True
    read = {o.variable for o in inside if isinstance(o, ReadVariable)}
    if not read:  # almost every operation ends here, without a search of the whole program
        return False
    return any(o.variable in read for o in operation.graph.every_operation() if isinstance(o, Assign))


def gradients_by_input(inputs: Sequence[Tensor], xs: Sequence[Tensor], grads: Sequence[Tensor]) -> list[Tensor | None]:
    """The gradient of each input. An input that is both captured and given to the block has two gradients to add."""
    total: dict[Tensor, Tensor] = {}
    for x, grad in zip(xs, grads, strict=True):
        total[x] = add(total[x], grad) if x in total else grad
    return [total.get(x) for x in inputs]
