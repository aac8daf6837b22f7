"""A Transformer that predicts the class of a text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.activations import activation_function
from meshtf.layers.attention import AttentionMask
from meshtf.layers.dense import dense
from meshtf.layers.initializers import DenseInitializer
from meshtf.layers.losses import softmax_cross_entropy_with_logits
from meshtf.layers.transformer import Context, Observations, TokenEmbedding, TransformerStack
from meshtf.layers.transformer.dropout import dropped
from meshtf.layers.transformer.token_loss import TokenMetrics
from meshtf.models._settings import check_parts, check_size
from meshtf.models._token_sequence import TokenSequence, feature

LABELS = "labels"


@gin.configurable(module="meshtf.models")
@dataclasses.dataclass(frozen=True)
class TextClassifier:
    """An encoder, and a class for each text from the vector of its first token (Devlin et al. 2019).

    The vector goes through a dense layer with an activation (BERT's pooler). Another dense layer gives the logits.

    Attributes:
      d_model: the size of the vectors.
      embedding: the embedding of tokens.
      stack: layers of self-attention and feed-forward.
      num_classes: the number of classes.
      dropout_rate: the share of the pooled vector that is dropped.
      kernel_initializer: the initializer of both dense layers.
      padding_id: the id of the inputs that nobody sees.
      activation: the activation of the first dense layer.
    """

    d_model: int
    embedding: TokenEmbedding
    stack: TransformerStack
    num_classes: int
    dropout_rate: float = 0.0
    kernel_initializer: DenseInitializer | None = None
    padding_id: int = 0
    activation: str = "tanh"

    def __post_init__(self) -> None:
        check_size(self, "d_model")
        activation_function(self.activation)
        check_size(self, "num_classes")
        check_parts(self, embedding=TokenEmbedding, stack=TransformerStack)

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
        with mtf.variable_scope("encoder"):
            context = Context(
                AttentionMask(), sequence.unpadded_tokens(self.padding_id), sequence.positions, is_training
            )
            x, observations = self.stack.observed(x, context)
        first, initializer = x["length", 0], self.kernel_initializer
        pooled = dense(first, [d_model], activation=self.activation, kernel_initializer=initializer, name="pooler")
        pooled = dropped(pooled, self.dropout_rate, (), is_training=is_training)
        return dense(pooled, [self.classes], kernel_initializer=initializer, name="classifier"), observations

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> TokenMetrics:
        """The "loss" and "accuracy" of each text [batch], whose classes are `labels`, int32 [batch]."""
        logits, observations = self._observed(features, is_training)
        labels = feature(features, LABELS)
        loss = softmax_cross_entropy_with_logits(logits, labels, self.classes)
        is_right = mtf.equal(logits.argmax("classes"), labels).astype(tf.float32)
        counted = mtf.ones_like(loss)
        return observations.added_to(
            {"loss": (loss, counted), "accuracy": (is_right, counted)}, is_training=is_training
        )

    def predict(self, features: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        """The "probabilities" [batch, classes] and the likeliest "class", int32 [batch]."""
        logits = self.logits(features, is_training=False)
        probabilities = logits.astype(tf.float32).softmax("classes")
        return {"probabilities": probabilities, "class": logits.argmax("classes")}
