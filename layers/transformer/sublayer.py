"""Sublayers: the parts of which a stack's layers are made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import meshtf as mtf
from meshtf.layers.transformer.context import Context, DecodingSpace


@runtime_checkable
class Sublayer(Protocol):
    """A part of a layer: a function from x to the term that the residual connection adds.

    Variables go under the open scope. If a sublayer has an attribute `norms_input` that is False, it receives x itself,
    without the norm of the residual connection.
    """

    @property
    def name(self) -> str:
        """The scope of its variables."""
        ...

    @property
    def num_states(self) -> int:
        """The number of tensors in its state while decoding."""
        ...

    def __call__(self, x: mtf.Tensor, context: Context) -> mtf.Tensor:
        """Applies the sublayer to whole sequences: [.., length, d_model] -> the same shape."""
        ...

    def fill(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """The result of a call, and the state from which decoding continues.

        The state has all positions of x, and room for the context's `max_length`.
        """
        ...

    def start(self, space: DecodingSpace, context: Context) -> list[mtf.Tensor]:
        """The state from which decoding starts, before the first token.

        If the space has a `beam`, state tensors with that dimension are reordered after each step, as the hypotheses
        are.
        """
        ...

    def step(
        self, x: mtf.Tensor, context: Context, position: mtf.Tensor, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """Processes one token of each sequence: [.., d_model] -> the same shape, and the new state.

        `position` (int32 over the dimensions of the batch, or fewer) is the token's place in the state. It is negative
        if the state has the token already. A state tensor that is returned as it was given is not copied.
        """
        ...


@runtime_checkable
class ObservedSublayer(Sublayer, Protocol):
    """A sublayer that returns observations in addition to its result.

    They are made of sums over all tokens of a batch, or of each part of a batch.
    """

    def tallied(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, Mapping[str, mtf.Tensor]]:
        """The result of a call, and sums over the tokens by name: float32 scalars or vectors.

        Sums of a batch's parts add up.

        In a pipeline, the dimension along which tokens belong to different layers comes first.
        """
        ...

    def observations(self, tallies: Mapping[str, mtf.Tensor]) -> Mapping[str, mtf.Tensor]:
        """Observations by name, made of the sums over a whole batch. "auxiliary_loss" is added to the training loss;
        the others are for monitoring.

        The sums are those of one layer, or have leading dimensions that count layers. The result has the same ones.
        """
        ...

    def together(self, num_sequences: int, length: int) -> int:
        """The number of neighbouring sequences that it must process together, in a batch of `num_sequences` of this
        length.
        """
        ...
