"""What a stack is made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import meshtf as mtf
from meshtf.layers.transformer.context import Context, DecodingSpace


@runtime_checkable
class Sublayer(Protocol):
    """A part of a layer: from x to what the residual connection adds to it. Variables go under the open scope."""

    @property
    def name(self) -> str:
        """The scope of its variables."""
        ...

    @property
    def num_states(self) -> int:
        """How many tensors its state is in decoding."""
        ...

    def __call__(self, x: mtf.Tensor, context: Context) -> mtf.Tensor:
        """Of whole sequences: [.., length, d_model] -> the same shape."""
        ...

    def fill(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """As a call, with the state in which decoding goes on: that of all positions of x, with room for the context's
        `max_length`."""
        ...

    def start(self, space: DecodingSpace, context: Context) -> list[mtf.Tensor]:
        """The state in which decoding starts, before the first token.

        Where the space has a `beam`, what of the state has this dimension is put in the order of the hypotheses after
        each step.
        """
        ...

    def step(
        self, x: mtf.Tensor, context: Context, position: mtf.Tensor, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """Of one token of each sequence: [.., d_model] -> the same shape, and the new state.

        `position` (int32 over the dimensions of the batch, or fewer) is where the state takes the token in; negative
        where it has it already. Of the state, what is returned as it was given is not copied.
        """
        ...


@runtime_checkable
class ObservedSublayer(Sublayer, Protocol):
    """A sublayer that has more to tell than what it adds to the residual connection.

    What it counts, it counts over all tokens of a batch, or of each part of one.
    """

    def tallied(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, Mapping[str, mtf.Tensor]]:
        """As a call, and sums over the tokens by name, float32 scalars or vectors: those of a batch's parts add up.

        In a pipeline they have the dimension in front along which tokens belong to different layers.
        """
        ...

    def observations(self, tallies: Mapping[str, mtf.Tensor]) -> Mapping[str, mtf.Tensor]:
        """What the sums over a whole batch come to, by name: "auxiliary_loss" is trained on, the others are seen.

        The sums are those of one layer, or have dimensions in front that count layers, and so has the result.
        """
        ...

    def together(self, num_sequences: int, length: int) -> int:
        """How many sequences, neighbours in a batch of so many of this length, it can only work on at once."""
        ...
