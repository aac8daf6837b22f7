"""Blocks: lists of operations that run inside another operation, such as the body of a loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshtf.graph.operation import Operation
    from meshtf.graph.tensor import Tensor


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Place:
    """The location of an operation: the program itself, or a block."""

    what: str


PROGRAM = Place("the program")


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """Operations that run inside another, such as the body of a loop or a branch. `bound` are the block's inputs."""

    operations: tuple[Operation, ...]
    bound: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def captures(self) -> list[Tensor]:
        """The outer tensors that the operations use, or that the block returns unchanged."""
        inside = {*self.bound, *(t for o in self.operations for t in o.outputs)}
        used = [*(x for o in self.operations for x in o.inputs), *self.outputs]
        return list(dict.fromkeys(x for x in used if x not in inside))


def with_nested(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Operations, and the operations of their blocks."""
    for operation in operations:
        yield operation
        for block in operation.blocks:
            yield from with_nested(block.operations)
