"""The loss and the accuracy of predicted tokens."""

from __future__ import annotations

import dataclasses

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.field_checks import check_kinds, check_not_negative, check_shares, check_sizes
from meshtf.layers.class_ids import are_right
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.losses import softmax_cross_entropy_with_logits

_BLOCKS = "(loss-blocks)"  # in parentheses, so that no layout rule splits it

TokenMetrics = dict[str, tuple[mtf.Tensor, mtf.Tensor]]


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class TokenLoss:
    """The cross-entropy of each token. Both refinements are for training: an evaluation's loss is the plain one.

    Attributes:
      label_smoothing: the share of a target that is divided equally among all ids (Szegedy et al. 2016).
      z_loss: the coefficient of the square of the normaliser's logarithm.
      padding_id: if there are no weights, targets with this id do not count. It may be outside the vocabulary, such as
        -100. None: all targets count.
      check_targets: whether a target that counts and is outside the vocabulary raises IndexRangeError.
      blocks: the number of blocks, along the length, in which logits and losses are computed one after the other. Only
        one block's logits are in memory, and the gradient computes them again. For a large vocabulary this saves most
        of a step's memory, for one more product with the vocabulary's table.
    """

    label_smoothing: float = 0.0
    z_loss: float = 0.0
    padding_id: int | None = 0
    check_targets: bool = True
    blocks: int = 1

    def __post_init__(self) -> None:
        check_kinds(self, GraphError)
        check_sizes(self, "blocks", error=GraphError)
        check_shares(self, "label_smoothing", error=GraphError)
        check_not_negative(self, "z_loss", error=GraphError)

    def metrics_of_vectors(
        self,
        x: mtf.Tensor,
        d_model: mtf.Dimension,
        targets: mtf.Tensor,
        weights: mtf.Tensor | None,
        vocabulary: VocabularyEmbedding,
        *,
        is_training: bool,
    ) -> TokenMetrics:
        """The same as `metrics`, from the vectors x [.., length, d_model] of which logits are made.

        Raises:
          ShapeError: the length does not divide into `blocks`.
        """
        if self.blocks == 1:
            logits = vocabulary.hidden_to_logits(x, d_model)
            return self.metrics(logits, targets, weights, vocabulary, is_training=is_training)
        counted = self.counted(targets) if weights is None else weights

        def block(_: object, parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            vectors, chosen, own = parts
            logits = vocabulary.hidden_to_logits(vectors, d_model)
            found = self.metrics(logits, chosen, own, vocabulary, is_training=is_training)
            return [], [value for value, _ in found.values()]

        cut = [_cut(t, self.blocks) for t in (x, targets, mtf.broadcast(counted, targets.shape))]
        _, results = mtf.scan(block, [], cut, _BLOCKS, recompute="nothing", draws_alike=True, name="loss_in_blocks")
        loss, is_right = (_joined(t, targets.shape) for t in results)
        return {"loss": (loss, counted), "accuracy": (is_right, counted)}

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
          weights: float32 [.., length], 0 where a target does not count and may be any number; by default 0 for
            padding, and 1 for other targets.
          vocabulary: says which logits are padding.
          is_training: whether labels are smoothed and z_loss is added.
        """
        counted = self.counted(targets) if weights is None else weights
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
        is_right = are_right(logits.argmax(vocabulary.vocab), targets)
        return {"loss": (loss, counted), "accuracy": (is_right, counted)}

    def counted(self, targets: mtf.Tensor) -> mtf.Tensor:
        """The weights of targets without weights, float32 [.., length], which are 0 for padding."""
        if self.padding_id is None:
            return mtf.ones_like(targets.astype(tf.float32))
        return mtf.not_equal(targets, self.padding_id).astype(tf.float32)


def _cut(x: mtf.Tensor, blocks: int) -> mtf.Tensor:
    """x with its `length` in blocks, [.., blocks, length of a block, ..]."""
    length = x.shape["length"]
    if length.size % blocks:
        raise ShapeError(f"TokenLoss: blocks={blocks} must divide the length, {length.size}, of [{x.shape}]")
    return x.unflatten(length, [(_BLOCKS, blocks), (length.name, length.size // blocks)])


def _joined(x: mtf.Tensor, shape: mtf.Shape) -> mtf.Tensor:
    """A result of all blocks [blocks, .., length of a block, ..] in the shape of the targets."""
    axis = shape.axis("length")
    blocks, *others = x.shape
    beside = x.transpose([*others[:axis], blocks, *others[axis:]])
    return beside.reshape(shape)
