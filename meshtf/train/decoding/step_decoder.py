"""The interface of a model that decoding needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import tensorflow as tf

import meshtf as mtf


class OutputVocabulary(Protocol):
    """The logits that stand for tokens."""

    @property
    def vocab_size(self) -> int:
        """The number of logits that stand for tokens. They come first, and padding follows."""
        ...


class StepDecoder(Protocol):
    """A decoder that computes one token after the other in a program: see `meshtf.models.IncrementalDecoder`."""

    @property
    def vocab(self) -> mtf.Dimension: ...

    @property
    def output(self) -> OutputVocabulary: ...

    def start(self, mesh: mtf.Mesh, batch_dims: mtf.Shape, max_length: int, dtype: tf.DType) -> list[mtf.Tensor]:
        """Returns the state before the first token."""
        ...

    def fill(self, prompts: mtf.Tensor, prompt_lengths: mtf.Tensor, max_length: int | None = None) -> list[mtf.Tensor]:
        """Returns the state after prompts, from one pass over all of their tokens, with room for `max_length`
        tokens.
        """
        ...

    def step(
        self, tokens: mtf.Tensor, position: mtf.Tensor, writes_at: mtf.Tensor, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        """Returns logits of the tokens at `position`, from the tokens before it, and the new state."""
        ...


@runtime_checkable
class BeamDecoder(StepDecoder, Protocol):
    """A decoder that can leave parts of its state in place when hypotheses move to other beams."""

    def with_beam(self, beam: mtf.Dimension) -> StepDecoder:
        """Returns the same decoder for hypotheses over `beam`. Only state with this dimension is reordered after
        each step.
        """
        ...


@runtime_checkable
class SeveralTokensDecoder(StepDecoder, Protocol):
    """A decoder that may read several tokens of each sequence in one step."""

    @property
    def reads_several_tokens(self) -> bool:
        """Whether `step` takes tokens [batch dimensions, n] at their positions, each of which sees the ones before it.

        The state must be one that `fill` has made.
        """
        ...


@runtime_checkable
class TextModel(Protocol):
    """A model that predicts each token of `targets` from the tokens before it, and from `inputs` if it has them."""

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> Mapping[str, Any]:
        """Returns metrics with "loss": minus the log-likelihood of each target [batch, length], and its weight."""
        ...

    def incremental_decoder(self, features: Mapping[str, mtf.Tensor]) -> StepDecoder: ...


@runtime_checkable
class PromptStarter(Protocol):
    """A `TextModel` that says whether it puts a token of its own before a prompt."""

    start_id: int
    starts_prompts: bool


def predicts_first_token(model: object) -> bool:
    """Whether the model predicts the first token of a text. A `PromptStarter` that starts no prompt does not."""
    return not isinstance(model, PromptStarter) or model.starts_prompts


def token_logits(logits: mtf.Tensor, decoder: StepDecoder) -> mtf.Tensor:
    """Returns logits [.., vocab] in float32, -inf where they stand for no token."""
    logits, vocab = mtf.cast(logits, tf.float32), decoder.vocab
    if decoder.output.vocab_size == vocab.size:
        return logits
    is_token = mtf.less(mtf.range(logits.mesh, vocab), decoder.output.vocab_size)
    return mtf.where(is_token, logits, -math.inf, output_shape=logits.shape)
