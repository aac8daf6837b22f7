"""The memory to which queries attend, block by block."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import meshtf as mtf
from meshtf.layers.attention._blocks import Blocks
from meshtf.layers.attention.tokens import MEMORY_LENGTH, Tokens

MEMORY_BLOCKS = "memory_blocks"


@dataclasses.dataclass(frozen=True)
class BlockedMemory:
    """The memory that queries attend to: all of it, cut into blocks, or one block.

    kept: the weights that dropout keeps, if they are drawn before.
    number: the block's number, if weights are drawn in each block.
    """

    k: mtf.Tensor
    v: mtf.Tensor
    tokens: Tokens
    kept: mtf.Tensor | None
    number: mtf.Tensor | None = None

    def cut(self, blocks: Blocks) -> BlockedMemory:
        """Cuts every tensor that has `memory_length` into n blocks: a block has every n-th position."""
        inside, block = mtf.Dimension(MEMORY_LENGTH, blocks.size), mtf.Dimension(MEMORY_BLOCKS, blocks.count)

        def cut(x: mtf.Tensor) -> mtf.Tensor:
            if not x.shape.has(MEMORY_LENGTH):
                return x
            return blocks.padded(x, MEMORY_LENGTH).unflatten(MEMORY_LENGTH, [inside, block])

        return self.map(cut)

    def numbered(self, count: int) -> BlockedMemory:
        """The same memory with the numbers of `count` blocks."""
        return dataclasses.replace(self, number=mtf.range(self.k.mesh, mtf.Dimension(MEMORY_BLOCKS, count)))

    def sliced(self) -> list[mtf.Tensor]:
        """The tensors that differ between blocks."""
        found: list[mtf.Tensor] = []

        def collect(x: mtf.Tensor) -> mtf.Tensor:
            if x.shape.has(MEMORY_BLOCKS):
                found.append(x)
            return x

        self.map(collect)
        return found

    def block(self, parts: list[mtf.Tensor]) -> BlockedMemory:
        """One block, of the parts of `sliced`."""
        left = iter(parts)
        return self.map(lambda x: next(left) if x.shape.has(MEMORY_BLOCKS) else x)

    def map(self, fn: Callable[[mtf.Tensor], mtf.Tensor]) -> BlockedMemory:
        """The same of every tensor that is given."""
        kept, number = (None if x is None else fn(x) for x in (self.kept, self.number))
        return BlockedMemory(fn(self.k), fn(self.v), self.tokens.map(fn), kept, number)
