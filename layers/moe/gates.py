"""Gates: a score for each token and expert, by which a router decides."""

from __future__ import annotations

import dataclasses

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.field_checks import check_choice, check_fractions, check_kinds, check_not_negative
from meshtf.layers.initializers import DenseInitializer, VarianceScalingInitializer

SCORINGS = ("softmax", "sigmoid")


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class Gates:
    """The logits of the experts, by a product in float32, whatever dtype activations have.

    Attributes:
      jitter: in training, tokens are multiplied by uniform numbers in [1 - jitter, 1 + jitter] (Fedus et al. 2021).
      z_loss: coefficient of the mean square of the logits' normaliser, which keeps them small (Zoph et al. 2022).
      kernel_initializer: the initializer of the kernel [d_model, _experts]; by default as in `dense`.
      use_bias: whether a variable `router_bias` [_experts] is added (gpt-oss).
      scoring: how scores come from logits: their "softmax", or the "sigmoid" of each (DeepSeek-V3).
    """

    jitter: float = 0.0
    z_loss: float = 0.0
    kernel_initializer: DenseInitializer | None = None
    use_bias: bool = False
    scoring: str = "softmax"

    def __post_init__(self) -> None:
        check_kinds(self)
        check_fractions(self, "jitter")
        check_not_negative(self, "z_loss")
        check_choice(self, "scoring", SCORINGS)

    def logits(self, x: mtf.Tensor, num_experts: int, *, is_training: bool) -> mtf.Tensor:
        """[.., group, tokens, d_model] -> float32 [.., group, tokens, _experts].

        The dimension is not called `experts`, so that a token's logits stay with the token, however experts are split.
        """
        d_model, experts = x.shape[-1], mtf.Dimension("_experts", num_experts)
        x = x.astype(tf.float32)
        if is_training and self.jitter:
            x *= mtf.random_uniform(x.mesh, x.shape, tf.float32, 1.0 - self.jitter, 1.0 + self.jitter)
        kernel_initializer = self.kernel_initializer or VarianceScalingInitializer()
        initializer = kernel_initializer(mtf.Shape([d_model]), mtf.Shape([experts]))
        kernel = mtf.get_variable(x.mesh, "router", [d_model, experts], initializer=initializer)
        logits = mtf.einsum([x, kernel.astype(tf.float32)], output_shape=x.shape[:-1] + [experts])
        if self.use_bias:
            logits += mtf.get_variable(x.mesh, "router_bias", [experts], initializer=mtf.zeros).astype(tf.float32)
        return logits

    def log_scores(self, logits: mtf.Tensor) -> mtf.Tensor:
        """The logarithms of scores. With softmax, a constant for each token may be added to them."""
        return logits if self.scoring == "softmax" else -mtf.softplus(-logits)

    def scores(self, log_scores: mtf.Tensor, probabilities: mtf.Tensor) -> mtf.Tensor:
        """The scores by which a router chooses, from their logarithms and the softmax of these."""
        return probabilities if self.scoring == "softmax" else mtf.exp(log_scores)
