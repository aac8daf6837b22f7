"""The experts to which each token goes, and the weight of each."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.layers.moe.token_groups import TOKENS

CHOICES = "choices"

_LEAST = 1e-20


@dataclasses.dataclass(frozen=True)
class Choices:
    """A few experts for each token.

    Attributes:
      experts: int32 [.., group, tokens, choices], the first choice first; the number of experts stands for no expert.
      weights: float32 [.., group, tokens, choices]; 0 for no expert.
      num_experts: how many there are.
    """

    experts: mtf.Tensor
    weights: mtf.Tensor
    num_experts: int

    @classmethod
    def top(cls, probabilities: mtf.Tensor, num_choices: int, *, is_normalized: bool) -> Choices:
        """The experts with the largest probabilities [.., group, tokens, _experts]; the first of equal ones.

        With `is_normalized`, the weights of a token sum to 1. Otherwise they are the probabilities. Sigmoids of a token
        may all be 0, and its weights then are 0.
        """
        experts = probabilities.shape[-1]
        weights, numbers = mtf.top_k(probabilities, experts, mtf.Dimension(CHOICES, num_choices))
        if is_normalized:
            weights /= weights.sum(weights.shape[-1]) + _LEAST
        return cls(numbers, weights, experts.size)

    def where(self, is_taken: mtf.Tensor | None) -> Choices:
        """The choices for which a tensor over [.., group, tokens], [choices] or both is true; None takes all."""
        if is_taken is None:
            return self
        shape = self.experts.shape
        return dataclasses.replace(
            self,
            experts=mtf.where(is_taken, self.experts, self.num_experts, output_shape=shape),
            weights=mtf.where(is_taken, self.weights, 0.0, output_shape=shape),
        )

    def counts(self, first_only: bool = False) -> mtf.Tensor:
        """The number of tokens that go to each expert, int32 [.., group, _experts], by all choices or by the first
        alone.
        """
        chosen = self.experts[CHOICES, :1] if first_only else self.experts
        experts = mtf.Dimension("_experts", self.num_experts)
        mesh, groups = chosen.mesh, [d for d in chosen.shape if d.name not in (TOKENS, CHOICES)]
        none = mtf.zeros(mesh, [*groups, experts], tf.int32)
        return mtf.scatter_add(none, chosen, mtf.ones(mesh, chosen.shape, tf.int32), experts)
