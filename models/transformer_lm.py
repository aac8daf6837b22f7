"""A Transformer that continues text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.field_checks import check_kinds, check_sizes
from meshtf.layers.attention import AttentionMask
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.transformer import (
    ChainedStacks,
    Context,
    Observations,
    TokenEmbedding,
    TokenLoss,
    TransformerStack,
)
from meshtf.layers.transformer.token_loss import TokenMetrics
from meshtf.models._features import feature
from meshtf.models._settings import check_id
from meshtf.models._token_sequence import TokenSequence
from meshtf.models.incremental_decoder import IncrementalDecoder

SCOPE = "decoder"


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class TransformerLM:
    """A decoder: each token is predicted from those before it.

    Attributes:
      d_model: the size of the vectors.
      embedding: the embedding of tokens.
      stack: the layers, self-attention and feed-forward; or several stacks, one after the other.
      output: makes logits; by default the embedding's own table.
      loss: smoothing and z-loss.
      sees_prefix: whether the tokens marked as `targets_prefix` all see each other (prefix language model, Raffel et
        al. 2020).
      start_id: the id from which the first token is predicted, such as the end of the text before (GPT-2), or a token
        that begins every text (Llama).
      starts_prompts: whether the model sees `start_id` before a text. If not, it sees the text's own first token first,
        as with tokenizers that add no begin token (GPT-2, Qwen2). Nothing predicts this token, so no loss and no score
        counts it. An empty prompt is continued from `start_id` in both cases.
    """

    d_model: int
    embedding: TokenEmbedding
    stack: TransformerStack | ChainedStacks
    output: VocabularyEmbedding | None = None
    loss: TokenLoss = dataclasses.field(default_factory=TokenLoss)
    sees_prefix: bool = False
    start_id: int = 0
    starts_prompts: bool = True

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "d_model")
        check_id(self, "start_id", self.embedding.vocabulary)

    @property
    def vocabulary(self) -> VocabularyEmbedding:
        """The vocabulary of the targets."""
        return self.output or self.embedding.vocabulary

    def logits(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> mtf.Tensor:
        """The logits of each target from those before it: features with `targets` [batch, length] -> [batch, length,
        vocab]. Without `starts_prompts`, the logits of a text's first token have no meaning.

        The feature `targets_lengths`, int32 [batch], has the lengths of texts for rotary embeddings that depend on
        them. Without it all are as long as `length`.
        """
        return self.vocabulary.hidden_to_logits(self._observed(features, is_training)[0], self._d_model)

    def _observed(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> tuple[mtf.Tensor, Observations]:
        """The vectors that logits are made of, and the layers' observations."""
        sequence, d_model = TokenSequence.of(features, "targets"), self._d_model
        self.embedding.vocabulary.checked(sequence.ids, features.get("targets_weights"))
        ids = sequence.shifted_right(self.start_id) if self.starts_prompts else sequence.ids
        positions = sequence.positions
        x = self.embedding(ids, positions, d_model, is_training=is_training, are_checked=True)
        is_prefix = feature(features, "targets_prefix") if self.sees_prefix else None
        tokens = dataclasses.replace(sequence.tokens, is_prefix=is_prefix)
        lengths = features.get("targets_lengths")
        context = Context(self._mask, tokens, sequence.positions, is_training, lengths=lengths)
        with mtf.variable_scope(SCOPE):
            x, observations = self.stack.observed(x, context)
        if not self.starts_prompts:  # the vector of each token predicts the token behind it
            x = mtf.shift(x, 1, "length", wrap=False)
        return x, observations

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> TokenMetrics:
        """The "loss" and "accuracy" of each target [batch, length], with its weight: `targets_weights`, if given.

        There are also scalars of the layers, such as the share of tokens that a mixture of experts dropped.
        """
        weights = self._weights(features)
        x, observations = self._observed(features, is_training)
        metrics = self.loss.metrics_of_vectors(
            x, self._d_model, features["targets"], weights, self.vocabulary, is_training=is_training
        )
        return observations.added_to(metrics, is_training=is_training)

    def _weights(self, features: Mapping[str, mtf.Tensor]) -> mtf.Tensor | None:
        """The weights of targets, 0 where nothing predicts them."""
        weights = features.get("targets_weights")
        if self.starts_prompts:
            return weights
        sequence = TokenSequence.of(features, "targets")
        is_predicted = sequence.have_one_before().astype(tf.float32)
        return (self.loss.counted(sequence.ids) if weights is None else weights) * is_predicted

    def incremental_decoder(self, features: Mapping[str, mtf.Tensor]) -> IncrementalDecoder:
        """The decoder that works token by token. The feature `targets_start`, int32 [batch], replaces `start_id`."""
        d_model, start = self._d_model, features.get("targets_start")
        start_id = self.start_id if start is None else self.embedding.vocabulary.checked(start)
        return IncrementalDecoder(
            self.embedding, self.vocabulary, self.stack, d_model, SCOPE, self._mask, start_id=start_id
        )

    @property
    def _d_model(self) -> mtf.Dimension:
        return mtf.Dimension("d_model", self.d_model)

    @property
    def _mask(self) -> AttentionMask:
        return AttentionMask(is_causal=True, sees_prefix=self.sees_prefix)
