"""Building blocks: the operations that a Python function makes, apart from the program around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.errors import GraphError
from meshtf.graph import Block, Mesh, Operation, Tensor
from meshtf.lowering.layouts import LayoutTable, ResolvedLayout
from meshtf.lowering.planner import Planner


class BlockInputOperation(Operation):
    """A tensor given to a block. The operation that has the block says how it is laid out and what it is."""

    def __init__(self, mesh: Mesh, shape: Shape, dtype: tf.DType, name: str) -> None:
        # It belongs to no list of operations: the block is given it.
        with mesh.graph.capture():
            super().__init__([], [(shape, dtype)], name=name, mesh=mesh)

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        return [layouts.resolved(self.outputs[0])]

    def lower(self, planner: Planner) -> None:
        raise AssertionError(f"{self.name} is given to its block, not lowered")


def block_input(like: Tensor, name: str, shape: Shape | None = None) -> Tensor:
    """A tensor to give to a block, of the dtype of `like`, and of its shape unless another is given."""
    own = BlockInputOperation(like.mesh, like.shape if shape is None else shape, like.dtype, name)
    own.overrides_layout = like.is_overridden
    return own.outputs[0]


def build(mesh: Mesh, fn: Callable[..., Any], arguments: Sequence[Tensor]) -> tuple[tuple[Operation, ...], Any]:
    """The operations that `fn(*arguments)` makes, and what it returns."""
    with mesh.graph.capture() as operations:
        results = fn(*arguments)
    return tuple(operations), results


def as_tensors(results: Any, what: str) -> list[Tensor]:
    """What a block's function returned, as a list of tensors. GraphError where it is something else."""
    listed = [] if results is None else list(results) if isinstance(results, list | tuple) else [results]
    for result in listed:
        if not isinstance(result, Tensor):
            raise GraphError(f"{what} must return mtf.Tensors, and returned {type(result).__name__}")
    return listed


def has_side_effect(blocks: Sequence[Block]) -> bool:
    return any(o.has_side_effect for block in blocks for o in block.operations)
