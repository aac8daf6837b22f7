"""A Transformer that fills in masked tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.field_checks import check_kinds, check_sizes
from meshtf.layers.activations import activation_function
from meshtf.layers.attention import AttentionMask
from meshtf.layers.dense import dense
from meshtf.layers.initializers import DenseInitializer
from meshtf.layers.transformer import (
    ChainedStacks,
    Context,
    Norm,
    Observations,
    TokenEmbedding,
    TokenLoss,
    TransformerStack,
)
from meshtf.layers.transformer.token_loss import TokenMetrics
from meshtf.models._features import feature
from meshtf.models._token_sequence import TokenSequence


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class MaskedLM:
    """An encoder, and a head that predicts the masked tokens (Devlin et al. 2019).

    Attributes:
      d_model: the size of the vectors.
      embedding: the tokens' embedding, whose table also makes the logits.
      stack: the layers of self-attention and feed-forward; or several stacks, one after the other.
      norm: the norm of the head. The head is a dense layer, its activation, this norm and the logits.
      activation: the head's activation.
      kernel_initializer: the initializer of the head's dense layer.
      head_has_bias: whether the head's dense layer adds a bias.
      loss: smoothing and z-loss.
      padding_id: the id of padding in the inputs, which no token sees, if no segments are given.
    """

    d_model: int
    embedding: TokenEmbedding
    stack: TransformerStack | ChainedStacks
    norm: Norm
    activation: str = "gelu_exact"
    kernel_initializer: DenseInitializer | None = None
    head_has_bias: bool = True
    loss: TokenLoss = dataclasses.field(default_factory=TokenLoss)
    padding_id: int = 0

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "d_model")
        activation_function(self.activation)

    def logits(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> mtf.Tensor:
        """The logits: features with `inputs` [batch, length], and perhaps `inputs_token_types` -> [batch, length,
        vocab].
        """
        return self.embedding.vocabulary.hidden_to_logits(self._observed(features, is_training)[0])

    def _observed(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> tuple[mtf.Tensor, Observations]:
        """The vectors that logits are made of, and the layers' observations."""
        sequence, d_model = TokenSequence.of(features, "inputs"), mtf.Dimension("d_model", self.d_model)
        token_types = features.get("inputs_token_types")
        x = self.embedding(sequence.ids, sequence.positions, d_model, is_training=is_training, token_types=token_types)
        with mtf.variable_scope("encoder"):
            context = Context(
                AttentionMask(), sequence.unpadded_tokens(self.padding_id), sequence.positions, is_training
            )
            x, observations = self.stack.observed(x, context)
        with mtf.variable_scope("head"):
            new = [self.embedding.summed(d_model)]
            x = dense(
                x,
                new,
                use_bias=self.head_has_bias,
                activation=self.activation,
                kernel_initializer=self.kernel_initializer,
                name="dense",
            )
            x = self.norm(x, x.shape[-1])
        return x, observations

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> TokenMetrics:
        """The "loss" and "accuracy" of each masked token [batch, length], with the weights `targets_weights`."""
        x, observations = self._observed(features, is_training)
        targets, weights = feature(features, "targets"), feature(features, "targets_weights")
        metrics = self.loss.metrics_of_vectors(
            x, x.shape[-1], targets, weights, self.embedding.vocabulary, is_training=is_training
        )
        return observations.added_to(metrics, is_training=is_training)

    def predict(self, features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        """The likeliest token at each place, masked or not: "ids", int32, and their "probabilities", [batch,
        length].
        """
        logits = self.logits(features, is_training=False).astype(tf.float32)
        vocab = logits.shape[-1]
        likeliest = logits.softmax(vocab).max(vocab)
        return {"ids": logits.argmax(vocab), "probabilities": likeliest}
