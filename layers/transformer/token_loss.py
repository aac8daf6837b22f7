"""The loss and the accuracy of predicted tokens."""

from __future__ import annotations

import dataclasses

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.losses import softmax_cross_entropy_with_logits

TokenMetrics = dict[str, tuple[mtf.Tensor, mtf.Tensor]]


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class TokenLoss:
    """The cross-entropy of each token. Both refinements are for training: an evaluation's loss is the plain one.

    Attributes:
      label_smoothing: the share of a target that all ids get alike (Szegedy et al. 2016).
      z_loss: the coefficient of the square of the normaliser's logarithm.
      padding_id: the id of targets that do not count without weights, in the vocabulary or not (-100); None: all
        count.
      check_targets: whether a step with a target that counts and is in no vocabulary raises IndexRangeError.
    """

    label_smoothing: float = 0.0
    z_loss: float = 0.0
    padding_id: int | None = 0
    check_targets: bool = True

    def metrics(
        self,
        logits: mtf.Tensor,
        targets: mtf.Tensor,
        weights: mtf.Tensor | None,
        vocabulary: VocabularyEmbedding,
        *,
        is_training: bool,
    ) -> TokenMetrics:
        """ "loss" and "accuracy" of each token, with its weight.

        Args:
          logits: [.., length, vocab].
          targets: int32 [.., length].
          weights: float32 [.., length], 0 where a target does not count and may be any number; by default 1 where the
            target is no padding.
          vocabulary: says which logits are padding.
          is_training: whether labels are smoothed and z_loss is added.
        """
        counted = self._counted(targets) if weights is None else weights
        loss = softmax_cross_entropy_with_logits(
            logits,
            targets,
            vocabulary.vocab,
            self.z_loss if is_training else 0.0,
            label_smoothing=self.label_smoothing if is_training else 0.0,
            vocab_size=vocabulary.vocab_size,
            weights=counted,
            check_targets=self.check_targets,
        )
        is_right = mtf.cast(mtf.equal(mtf.argmax(logits, vocabulary.vocab), targets), tf.float32)
        return {"loss": (loss, counted), "accuracy": (is_right, counted)}

    def _counted(self, targets: mtf.Tensor) -> mtf.Tensor:
        """The weights, float32 [.., length], which are 0 for padding."""
        if self.padding_id is None:
            return mtf.ones_like(mtf.cast(targets, tf.float32))
        return mtf.cast(mtf.not_equal(targets, self.padding_id), tf.float32)
