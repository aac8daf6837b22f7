"""The places that experts have for tokens, and the token in each place."""

from __future__ import annotations

import dataclasses

import meshtf as mtf
from meshtf.layers.moe._choices import Choices

SLOTS = "slots"


@dataclasses.dataclass(frozen=True)
class Slots:
    """Places for tokens. The places of one expert are side by side.

    Attributes:
      tokens: int32 [.., group, slots], the token's number in its group; -1 for an empty place.
      weights: float32 [.., group, slots], the weight of the expert's result for the token.
      capacity: the places of each expert; None if each has as many as it has tokens.
      sizes: int32 [.., group, _experts], the places of each expert, if their numbers differ.
    """

    tokens: mtf.Tensor
    weights: mtf.Tensor
    capacity: int | None
    sizes: mtf.Tensor | None = None

    @classmethod
    def with_capacity(cls, choices: Choices, capacity: int) -> Slots:
        """`capacity` places for each expert.

        Later choices may find none, and second choices come after all first ones.
        """
        by_expert = _SortedChoices.of(choices)
        place = mtf.range(by_expert.order.mesh, mtf.Dimension("capacity", capacity))
        ranks = by_expert.starts + place  # [.., group, _experts, capacity]
        # A rank behind an expert's last choice would name another expert's choice, so `counts` cuts it off below.
        found = by_expert.order["ranks", ranks]
        choice = mtf.where(place < by_expert.counts, found, -1, output_shape=ranks.shape)
        *groups, experts, places = ranks.shape
        return by_expert.slots(choice.reshape([*groups, _slots_dim(experts, places)]), capacity)

    @classmethod
    def without_limit(cls, choices: Choices) -> Slots:
        """A place for each choice, in the order of the experts, and empty places for choices that are not taken."""
        by_expert = _SortedChoices.of(choices)
        ranks = by_expert.order.shape[-1]
        is_taken = mtf.range(by_expert.order.mesh, ranks) < by_expert.counts.sum("_experts")
        choice = mtf.where(is_taken, by_expert.order, -1, output_shape=by_expert.order.shape)
        return by_expert.slots(choice.rename({ranks.name: SLOTS}), None)

    @classmethod
    def chosen_by_experts(cls, tokens: mtf.Tensor, weights: mtf.Tensor) -> Slots:
        """The places of experts that chose their tokens: tokens and weights are [.., group, _experts, capacity]."""
        *groups, experts, capacity = tokens.shape
        shape = mtf.Shape([*groups, _slots_dim(experts, capacity)])
        return cls(tokens.reshape(shape), weights.reshape(shape), capacity.size)


@dataclasses.dataclass(frozen=True)
class _SortedChoices:
    """All choices of a group, sorted by expert. Within an expert, all first choices come before second ones.

    Attributes:
      order: int32 [.., group, ranks], the numbers of the choices in this order.
      weights: float32 [.., group, ranks], the weights of the choices in their own order.
      counts: int32 [.., group, _experts], how many choices name each expert.
      starts: int32 [.., group, _experts], the rank of the first of them.
      num_tokens: the number of tokens in a group.
    """

    order: mtf.Tensor
    weights: mtf.Tensor
    counts: mtf.Tensor
    starts: mtf.Tensor
    num_tokens: int

    @classmethod
    def of(cls, choices: Choices) -> _SortedChoices:
        *groups, tokens, rounds = choices.experts.shape
        ranks = mtf.Dimension("ranks", rounds.size * tokens.size)

        def flat(x: mtf.Tensor) -> mtf.Tensor:
            # Rounds come first, so that the stable sort leaves all first choices before second ones.
            return x.transpose([*groups, rounds, tokens]).reshape([*groups, ranks])

        counts = choices.counts()
        starts = counts.cumsum(counts.shape[-1], exclusive=True)
        return cls(flat(choices.experts).argsort(ranks), flat(choices.weights), counts, starts, tokens.size)

    def slots(self, choice: mtf.Tensor, capacity: int | None) -> Slots:
        """Places for the choices that int32 [.., group, slots] numbers; -1 stands for none."""
        tokens = mtf.where(choice < 0, -1, choice % self.num_tokens)
        sizes = self.counts if capacity is None else None
        return Slots(tokens, self.weights["ranks", choice], capacity, sizes)


def _slots_dim(experts: mtf.Dimension, capacity: mtf.Dimension) -> mtf.Dimension:
    return mtf.Dimension(SLOTS, experts.size * capacity.size)
