"""The result of a router, with sums for statistics. The sums of the parts of a batch add up to those of the batch."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.layers.moe._choices import Choices
from meshtf.layers.moe._slots import Slots
from meshtf.layers.moe.token_groups import TOKENS

_LEAST = 1e-20


@dataclasses.dataclass(frozen=True)
class Routing:
    """The routing of the tokens of all groups. Sums are float32.

    Attributes:
      slots: the token in each place of an expert.
      choices: [.., _experts], the number of choices that name each expert, including dropped ones.
      dropped: [..], the number of choices that found no place.
      droppable: [..], the number of all choices.
      balance: [..], the sum over groups of a number that is 1 if the load is even; see `balance_loss`.
    """

    slots: Slots
    choices: mtf.Tensor
    dropped: mtf.Tensor
    droppable: mtf.Tensor
    balance: mtf.Tensor

    @classmethod
    def of_choices(
        cls,
        choices: Choices,
        probabilities: mtf.Tensor,
        is_routed: mtf.Tensor | None,
        capacity: int | None,
        *,
        balances_first_only: bool,
    ) -> Routing:
        """The routing of tokens that chose experts.

        Each expert has `capacity` places in each group, or as many as are wanted.

        Args:
          choices: the choices of the tokens that are routed.
          probabilities: float32 [.., group, tokens, _experts], from which they were made. They may be scores whose sum
            is not 1; the balance is of their shares.
          is_routed: bool [.., group, tokens], or None for all.
          capacity: None drops no token.
          balances_first_only: whether the balance loss counts first choices only.
        """
        slots = Slots.without_limit(choices) if capacity is None else Slots.with_capacity(choices, capacity)
        counts = choices.counts()
        *_, group, experts = counts.shape
        everywhere = counts.astype(tf.float32).sum(group)
        kept = counts if capacity is None else mtf.minimum(counts, capacity)
        dropped = (counts - kept).astype(tf.float32).sum(group, experts)
        balanced = choices.counts(first_only=True) if balances_first_only else counts
        shares = probabilities / (probabilities.sum(experts) + _LEAST)
        balance = balance_loss(balanced, shares, is_routed).sum(group)
        return cls(slots, everywhere, dropped, everywhere.sum(experts), balance)


def balance_loss(counts: mtf.Tensor, probabilities: mtf.Tensor, is_routed: mtf.Tensor | None) -> mtf.Tensor:
    """E · sum over experts of (share of choices) · (mean probability), float32 [.., group].

    It is 1 if both are even, and at most E (Fedus et al. 2021, equation 4). GShard's loss (Lepikhin et al. 2020,
    algorithm 1) has 1/E in place of E. The shares have no gradient.

    Args:
      counts: int32 [.., group, _experts], how many choices name each expert.
      probabilities: float32 [.., group, tokens, _experts].
      is_routed: bool [.., group, tokens], or None for all.
    """
    experts = counts.shape[-1]
    number = counts.astype(tf.float32)
    load = number / mtf.maximum(number.sum(experts), 1.0)
    if is_routed is None:
        importance = probabilities.mean(TOKENS)
    else:
        routed = is_routed.astype(tf.float32)
        total = mtf.maximum(routed.sum(TOKENS), 1.0)
        importance = mtf.einsum([probabilities, routed], output_shape=counts.shape) / total
    return (load * importance).sum(experts) * float(experts.size)
