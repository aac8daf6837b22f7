"""Options that all ways to attend share."""

from __future__ import annotations

import dataclasses

import gin

import meshtf as mtf
from meshtf.field_checks import check_above_zero, check_fractions, check_kinds


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class AttentionOptions:
    """Options for computing weights from logits.

    Attributes:
      dropout_rate: the share of the weights that is dropped in training.
      dropout_broadcast_dims: names of dimensions along which weights are dropped together; `("length",)` draws one mask
        for all queries, as Mesh-TensorFlow does.
      float32_logits: whether logits and their softmax are float32 whatever the type of q.
      extra_logit: one more logit in every row, which has no value: a number, or a floating tensor over heads. A row may
        then attend to nothing.
      logit_cap: logits become logit_cap · tanh(logits / logit_cap), before a bias and the mask (Gemma 2).

    Examples:
      >>> mtf.layers.AttentionOptions(dropout_rate=0.1, dropout_broadcast_dims=("length",)).float32_logits
      True
    """

    dropout_rate: float = 0.0
    dropout_broadcast_dims: tuple[str, ...] = ()
    float32_logits: bool = True
    extra_logit: float | mtf.Tensor | None = None
    logit_cap: float | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        check_fractions(self, "dropout_rate")
        check_above_zero(self, "logit_cap")

    def in_mode(self, is_training: bool) -> AttentionOptions:
        """The options, without dropout unless `is_training`."""
        return self if is_training else dataclasses.replace(self, dropout_rate=0.0)

    def noise_shape(self, weights: mtf.Shape) -> mtf.Shape:
        """The dimensions of the weights along which they are dropped independently.

        Raises:
          ShapeError: a name in `dropout_broadcast_dims` is no dimension of the weights.
        """
        together = {weights.axis(name) for name in self.dropout_broadcast_dims}
        return mtf.Shape([d for axis, d in enumerate(weights) if axis not in together])


DEFAULT_OPTIONS = AttentionOptions()
DROPOUT = "attention_dropout"  # keys the random bits, which are then the same however attention is computed
