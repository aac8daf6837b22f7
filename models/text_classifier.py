"""A Transformer that predicts the class of a text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.field_checks import check_choice, check_fractions, check_kinds, check_sizes
from meshtf.layers.activations import activation_function
from meshtf.layers.attention import AttentionMask, Tokens
from meshtf.layers.class_ids import are_right, likeliest_classes
from meshtf.layers.dense import dense
from meshtf.layers.initializers import DenseInitializer
from meshtf.layers.losses import softmax_cross_entropy_with_logits
from meshtf.layers.transformer import ChainedStacks, Context, Norm, Observations, TokenEmbedding, TransformerStack
from meshtf.layers.transformer.dropout import dropped
from meshtf.layers.transformer.token_loss import TokenMetrics
from meshtf.models._features import feature
from meshtf.models._token_sequence import TokenSequence

LABELS = "labels"
POOLINGS = ("first", "mean")


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class TextClassifier:
    """An encoder that gives each text a class, by the vector of its first token (Devlin et al. 2019) or by their mean.

    The vector goes through a dense layer with an activation (BERT's pooler). Another dense layer makes the logits.

    Attributes:
      d_model: the size of the vectors.
      embedding: the embedding of tokens.
      stack: layers of self-attention and feed-forward; or several stacks, one after the other.
      num_classes: the number of classes.
      dropout_rate: the share of the pooled vector that is dropped.
      kernel_initializer: the initializer of both dense layers.
      padding_id: the id of padding in the inputs, which no token sees, if no segments are given.
      activation: the activation of the first dense layer.
      pooling: "first" takes the vector of the first token, "mean" the mean over all tokens except padding.
      pooler_has_bias: whether the first dense layer adds a bias.
      norm: if given, normalizes the output of the first dense layer, in the scope `pooler` (ModernBERT).
    """

    d_model: int
    embedding: TokenEmbedding
    stack: TransformerStack | ChainedStacks
    num_classes: int
    dropout_rate: float = 0.0
    kernel_initializer: DenseInitializer | None = None
    padding_id: int = 0
    activation: str = "tanh"
    pooling: str = "first"
    pooler_has_bias: bool = True
    norm: Norm | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "num_classes", "d_model")
        check_choice(self, "pooling", POOLINGS)
        check_fractions(self, "dropout_rate")
        activation_function(self.activation)

    @property
    def classes(self) -> mtf.Dimension:
        return mtf.Dimension("classes", self.num_classes)

    def logits(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> mtf.Tensor:
        """The logits [batch, classes], from `inputs` [batch, length], a text in each row, and perhaps
        `inputs_token_types`.
        """
        return self._observed(features, is_training)[0]

    def _observed(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> tuple[mtf.Tensor, Observations]:
        """The logits, and the layers' observations."""
        sequence, d_model = TokenSequence.of(features, "inputs"), mtf.Dimension("d_model", self.d_model)
        token_types = features.get("inputs_token_types")
        x = self.embedding(sequence.ids, sequence.positions, d_model, is_training=is_training, token_types=token_types)
        tokens = sequence.unpadded_tokens(self.padding_id)
        with mtf.variable_scope("encoder"):
            context = Context(AttentionMask(), tokens, sequence.positions, is_training)
            x, observations = self.stack.observed(x, context)
        pooled = self._pooled(self._vector(x, tokens))
        pooled = dropped(pooled, self.dropout_rate, (), is_training=is_training)
        initializer = self.kernel_initializer
        return dense(pooled, [self.classes], kernel_initializer=initializer, name="classifier"), observations

    def _vector(self, x: mtf.Tensor, tokens: Tokens) -> mtf.Tensor:
        """The vector of each text [batch, d_model], from those of its tokens."""
        length = x.shape["length"]
        if self.pooling == "first":
            return x["length", 0]
        assert tokens.segments is not None
        # In float32, as other means are taken: a sum over thousands of tokens may be too large for float16.
        wide = x if x.dtype == tf.float64 else x.astype(tf.float32)
        is_token = mtf.not_equal(tokens.segments, 0).astype(wide.dtype)
        count = mtf.maximum(is_token.sum(length), 1.0)
        return (mtf.einsum([wide, is_token], output_shape=x.shape - [length]) / count).astype(x.dtype)

    def _pooled(self, x: mtf.Tensor) -> mtf.Tensor:
        pooled = dense(
            x,
            x.shape[-1:],
            use_bias=self.pooler_has_bias,
            activation=self.activation,
            kernel_initializer=self.kernel_initializer,
            name="pooler",
        )
        if self.norm is None:
            return pooled
        with mtf.variable_scope("pooler"):
            return self.norm(pooled, pooled.shape[-1])

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> TokenMetrics:
        """The "loss" and "accuracy" of each text [batch].

        The `labels` are integers [batch], or a distribution over the classes, floating [batch, classes]. The right
        class of a distribution is its likeliest one.
        """
        logits, observations = self._observed(features, is_training)
        labels = feature(features, LABELS)
        loss = softmax_cross_entropy_with_logits(logits, labels, self.classes)
        is_right = are_right(logits.argmax("classes"), likeliest_classes(labels, self.classes))
        counted = mtf.ones_like(loss)
        return observations.added_to(
            {"loss": (loss, counted), "accuracy": (is_right, counted)}, is_training=is_training
        )

    def predict(self, features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        """The "probabilities" [batch, classes] and the likeliest "class", int32 [batch]."""
        logits = self.logits(features, is_training=False)
        probabilities = logits.astype(tf.float32).softmax("classes")
        return {"probabilities": probabilities, "class": logits.argmax("classes")}
