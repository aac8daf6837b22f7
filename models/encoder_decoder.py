"""A Transformer that turns one sequence into another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import gin

import meshtf as mtf
from meshtf.field_checks import check_kinds, check_sizes
from meshtf.layers.attention import AttentionMask
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.transformer import Context, Memory, Observations, TokenEmbedding, TokenLoss, TransformerStack
from meshtf.layers.transformer.token_loss import TokenMetrics
from meshtf.models._settings import check_id
from meshtf.models._token_sequence import TokenSequence
from meshtf.models.incremental_decoder import IncrementalDecoder

ENCODER, DECODER = "encoder", "decoder"


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class EncoderDecoder:
    """A model of two stacks: an encoder of the inputs, and a decoder of the targets.

    The decoder predicts each target from the targets before it and from the vectors that the encoder makes.

    Attributes:
      d_model: the size of the vectors.
      embedding: the embedding of inputs and targets, or of inputs alone if `targets_embedding` is given.
      encoder: layers of self-attention and feed-forward.
      decoder: layers of self-attention, cross-attention and feed-forward.
      output: makes logits; by default the table of the targets' embedding.
      loss: smoothing and z-loss.
      targets_embedding: the embedding of the targets, if it is another one. Give its vocabulary another name; or share
        the vocabulary, and give the embedding itself another name (BART).
      start_id: the id from which the first target is predicted.
      padding_id: the id of padding in the inputs, which no token sees, if no segments are given.
    """

    d_model: int
    embedding: TokenEmbedding
    encoder: TransformerStack
    decoder: TransformerStack
    output: VocabularyEmbedding | None = None
    loss: TokenLoss = dataclasses.field(default_factory=TokenLoss)
    targets_embedding: TokenEmbedding | None = None
    start_id: int = 0
    padding_id: int = 0

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "d_model")
        check_id(self, "start_id", self._targets_embedding.vocabulary)

    @property
    def vocabulary(self) -> VocabularyEmbedding:
        """The vocabulary of the targets."""
        return self.output or self._targets_embedding.vocabulary

    def encode(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> Memory:
        """The memory of the decoder: features with `inputs` [batch, length] -> [batch, length, d_model]."""
        return self._encoded(features, is_training)[0]

    def _encoded(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> tuple[Memory, Observations]:
        """The memory of the decoder, and the observations of the encoder's layers."""
        sequence = TokenSequence.of(features, "inputs")
        tokens = sequence.unpadded_tokens(self.padding_id)
        context = Context(AttentionMask(), tokens, sequence.positions, is_training)
        x = self.embedding(sequence.ids, sequence.positions, self._d_model, is_training=is_training)
        with mtf.variable_scope(ENCODER):
            x, observations = self.encoder.observed(x, context)
        return Memory(x, tokens), observations.under(ENCODER)

    def logits(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> mtf.Tensor:
        """The logits: features with `inputs` and `targets` -> [batch, length of the targets, vocab]."""
        return self.vocabulary.hidden_to_logits(self._observed(features, is_training)[0], self._d_model)

    def _observed(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> tuple[mtf.Tensor, Observations]:
        """The vectors that logits are made of, and the observations of both sides' layers."""
        memory, observations = self._encoded(features, is_training)
        sequence = TokenSequence.of(features, "targets")
        context = Context(
            AttentionMask(is_causal=True), sequence.tokens, sequence.positions, is_training, memory=memory
        )
        embedding = self._targets_embedding
        embedding.vocabulary.checked(sequence.ids, features.get("targets_weights"))
        ids, positions = sequence.shifted_right(self.start_id), sequence.positions
        x = embedding(ids, positions, self._d_model, is_training=is_training, are_checked=True)
        with mtf.variable_scope(DECODER):
            x, more = self.decoder.observed(x, context)
        return x, observations | more.under(DECODER)

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> TokenMetrics:
        """The "loss" and "accuracy" of each target [batch, length], with its weight: `targets_weights`, if given."""
        weights = features.get("targets_weights")
        x, observations = self._observed(features, is_training)
        metrics = self.loss.metrics_of_vectors(
            x, self._d_model, features["targets"], weights, self.vocabulary, is_training=is_training
        )
        return observations.added_to(metrics, is_training=is_training)

    def incremental_decoder(self, features: Mapping[str, mtf.Tensor]) -> IncrementalDecoder:
        """The decoder that generates the outputs for `inputs` token by token."""
        memory, mask = self.encode(features, is_training=False), AttentionMask(is_causal=True)
        embedding = self._targets_embedding
        return IncrementalDecoder(
            embedding, self.vocabulary, self.decoder, self._d_model, DECODER, mask, memory, self.start_id
        )

    @property
    def _d_model(self) -> mtf.Dimension:
        return mtf.Dimension("d_model", self.d_model)

    @property
    def _targets_embedding(self) -> TokenEmbedding:
        return self.targets_embedding or self.embedding
