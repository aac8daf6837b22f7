"""The places that experts have for tokens, and which token each of them takes."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.layers.moe._choices import Choices

SLOTS = "slots"


@dataclasses.dataclass(frozen=True)
class Slots:
    """Places for tokens: blocks of equal size, each of which is of one expert.

    Attributes:
      tokens: int32 [.., group, slots], the token in its group; -1 in a place that is empty.
      weights: float32 [.., group, slots]: how much of what the expert makes of the token is taken.
      block_size: places of a block, side by side.
      experts: int32 [.., group, blocks], whose block it is; None where there is one for each expert, in their order.
    """

    tokens: mtf.Tensor
    weights: mtf.Tensor
    block_size: int
    experts: mtf.Tensor | None = None

    @classmethod
    def with_capacity(cls, choices: Choices, capacity: int) -> Slots:
        """So many places for each expert. Who comes later goes without: second choices after all first ones."""
        by_expert = _SortedChoices.of(choices)
        place = mtf.range(by_expert.order.mesh, mtf.Dimension("capacity", capacity))
        ranks = by_expert.starts + place  # [.., group, _experts, capacity]
        return by_expert.slots(ranks, mtf.less(place, by_expert.counts), capacity)

    @classmethod
    def without_limit(cls, choices: Choices) -> Slots:
        """As many blocks as experts need, so that nobody goes without, whatever the choices are.

        A block has the places that every expert needs where the load is even. With at most one partly empty block per
        expert, twice as many places as tokens do.
        """
        by_expert = _SortedChoices.of(choices)
        num_ranks, num_experts = by_expert.order.shape[-1].size, choices.num_experts
        size = -(-num_ranks // num_experts)
        most = (num_ranks + min(num_experts, num_ranks) * (size - 1)) // size
        blocks, experts = mtf.Dimension("blocks", most), by_expert.counts.shape[-1]
        mesh = by_expert.order.mesh
        needed = mtf.floordiv(by_expert.counts + (size - 1), size)
        ends = mtf.cumsum(needed, experts)
        number = mtf.range(mesh, blocks)
        owner = mtf.reduce_sum(mtf.cast(mtf.less_equal(ends, number), tf.int32), reduced_dim=experts)
        number_of_expert = mtf.sub(number, mtf.gather(ends - needed, owner, experts), output_shape=owner.shape)
        place = number_of_expert * size + mtf.range(mesh, mtf.Dimension("capacity", size))
        ranks = mtf.gather(by_expert.starts, owner, experts) + place
        slots = by_expert.slots(ranks, mtf.less(place, mtf.gather(by_expert.counts, owner, experts)), size)
        return dataclasses.replace(slots, experts=owner)

    @classmethod
    def chosen_by_experts(cls, tokens: mtf.Tensor, weights: mtf.Tensor) -> Slots:
        """From tokens and weights [.., group, _experts, capacity]."""
        *groups, experts, capacity = tokens.shape
        shape = mtf.Shape([*groups, _slots_dim(experts, capacity)])
        return cls(mtf.reshape(tokens, shape), mtf.reshape(weights, shape), capacity.size)


@dataclasses.dataclass(frozen=True)
class _SortedChoices:
    """All choices of a group, the first of all tokens before the second ones, in the order of their experts.

    Attributes:
      order: int32 [.., group, ranks], the choices in this order.
      weights: float32 [.., group, ranks], of choices in their own order.
      counts: int32 [.., group, _experts], how many choices name each expert.
      starts: int32 [.., group, _experts], the rank of the first of them.
      num_tokens: in a group.
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
            return mtf.reshape(mtf.transpose(x, [*groups, rounds, tokens]), [*groups, ranks])

        counts = choices.counts()
        starts = mtf.cumsum(counts, counts.shape[-1], exclusive=True)
        return cls(mtf.argsort(flat(choices.experts), ranks), flat(choices.weights), counts, starts, tokens.size)

    def slots(self, ranks: mtf.Tensor, is_there: mtf.Tensor, block_size: int) -> Slots:
        """Places for the choices of these ranks [.., group, blocks, capacity], where there are such."""
        found = mtf.gather(self.order, ranks, "ranks")
        choice = mtf.where(is_there, found, -1, output_shape=ranks.shape)
        *groups, blocks, capacity = ranks.shape
        shape = mtf.Shape([*groups, _slots_dim(blocks, capacity)])
        choice = mtf.reshape(choice, shape)
        tokens = mtf.where(mtf.less(choice, 0), -1, mtf.mod(choice, self.num_tokens))
        return Slots(tokens, mtf.gather(self.weights, choice, "ranks"), block_size)


def _slots_dim(blocks: mtf.Dimension, capacity: mtf.Dimension) -> mtf.Dimension:
    return mtf.Dimension(SLOTS, blocks.size * capacity.size)
