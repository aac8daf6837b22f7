"""Routers, which decide which tokens go to which experts."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import GraphError
from meshtf.field_checks import check_kinds, check_sizes
from meshtf.layers.moe._choices import Choices
from meshtf.layers.moe._slots import Slots
from meshtf.layers.moe.routing import Routing
from meshtf.layers.moe.token_groups import TOKENS

_NO_LIMIT = """\
ExpertChoiceRouter: an expert chooses as many tokens as its capacity allows; give a capacity \
(MixtureOfExperts.capacity)"""


class Router(Protocol):
    """Routes tokens by the softmax of their logits."""

    @property
    def num_choices(self) -> int:
        """The number of experts to which a token goes, or goes on average."""
        ...

    @property
    def is_causal(self) -> bool:
        """Whether a token's experts depend on that token alone."""
        ...

    def __call__(
        self, probabilities: mtf.Tensor, is_routed: mtf.Tensor | None, capacity: int | None, *, is_training: bool
    ) -> Routing:
        """Routes tokens.

        Args:
          probabilities: float32 [.., group, tokens, _experts]. Dimensions before the group are those along which tokens
            belong to different layers.
          is_routed: bool [.., group, tokens], false for padding; None routes all.
          capacity: the places of an expert in a group, or None for as many as are wanted.
          is_training: whether the router may be random.
        """
        ...


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class Top2Router:
    """Takes the two most probable experts, with weights that sum to 1 (Lepikhin et al. 2020, algorithm 1).

    First choices come before second ones, and earlier tokens before later ones. The balance loss counts first choices
    only.

    Attributes:
      second_is_random: whether training takes the second expert, of weight w, with probability 2w only.
    """

    second_is_random: bool = True

    def __post_init__(self) -> None:
        check_kinds(self)

    @property
    def num_choices(self) -> int:
        return 2

    @property
    def is_causal(self) -> bool:
        return True

    @language_function
    def __call__(
        self, probabilities: mtf.Tensor, is_routed: mtf.Tensor | None, capacity: int | None, *, is_training: bool
    ) -> Routing:
        choices = Choices.top(probabilities, 2, is_normalized=True).where(is_routed)
        if is_training and self.second_is_random:
            # A second expert with a small weight changes little but takes a place, so it is dropped more often.
            chance = mtf.random_uniform(probabilities.mesh, probabilities.shape[:-1])
            is_first = mtf.equal(mtf.range(probabilities.mesh, choices.experts.shape[-1]), 0)
            choices = choices.where(is_first | (chance < 2.0 * choices.weights))
        return Routing.of_choices(choices, probabilities, is_routed, capacity, balances_first_only=True)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class SwitchRouter:
    """Takes the most probable expert, weighted by its probability (Fedus et al. 2021). Earlier tokens come first."""

    @property
    def num_choices(self) -> int:
        return 1

    @property
    def is_causal(self) -> bool:
        return True

    @language_function
    def __call__(
        self, probabilities: mtf.Tensor, is_routed: mtf.Tensor | None, capacity: int | None, *, is_training: bool
    ) -> Routing:
        choices = Choices.top(probabilities, 1, is_normalized=False).where(is_routed)
        return Routing.of_choices(choices, probabilities, is_routed, capacity, balances_first_only=True)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class TopNRouter:
    """Takes the n most probable experts, none at random (Shazeer et al. 2017, without the noise).

    Attributes:
      num_choices: n.
      is_normalized: whether a token's weights sum to 1, or are the probabilities.
    """

    num_choices: int
    is_normalized: bool = True

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "num_choices")

    @property
    def is_causal(self) -> bool:
        return True

    @language_function
    def __call__(
        self, probabilities: mtf.Tensor, is_routed: mtf.Tensor | None, capacity: int | None, *, is_training: bool
    ) -> Routing:
        choices = Choices.top(probabilities, self.num_choices, is_normalized=self.is_normalized).where(is_routed)
        return Routing.of_choices(choices, probabilities, is_routed, capacity, balances_first_only=False)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class ExpertChoiceRouter:
    """Lets each expert take the tokens of a group for which it is most probable (Zhou et al. 2022).

    The load is always even, and the balance loss is 0. A token may go to any number of experts. Its experts depend on
    later tokens, so this router is for encoders. A token that no expert takes counts as dropped.

    Attributes:
      num_choices: how many experts take a token on average, for a capacity factor of 1.
    """

    num_choices: int = 2

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "num_choices")

    @property
    def is_causal(self) -> bool:
        return False

    @language_function
    def __call__(
        self, probabilities: mtf.Tensor, is_routed: mtf.Tensor | None, capacity: int | None, *, is_training: bool
    ) -> Routing:
        """Routes tokens.

        Raises:
          GraphError: `capacity` is None.
        """
        if capacity is None:
            raise GraphError(_NO_LIMIT)
        # Padding gets probability 0. It may still be chosen if an expert has more places than tokens, and is then
        # removed.
        if is_routed is not None:
            probabilities = mtf.where(is_routed, probabilities, 0.0, output_shape=probabilities.shape)
        weights, tokens = mtf.top_k(probabilities, TOKENS, mtf.Dimension("capacity", capacity))
        tokens = mtf.where(weights > 0.0, tokens, -1)
        *apart, _, length, experts = probabilities.shape
        taken = (tokens >= 0).astype(tf.float32)  # [.., group, _experts, capacity]
        # Several experts may have chosen one token, so tokens and not choices are counted.
        nobody = mtf.zeros(tokens.mesh, probabilities.shape[:-1])
        is_served = mtf.scatter_add(nobody, tokens, taken, length) > 0.0
        wanting = mtf.ones(tokens.mesh, nobody.shape, tf.bool) if is_routed is None else is_routed
        served, wanting = (mtf.reduce_sum(x.astype(tf.float32), output_shape=apart) for x in (is_served, wanting))
        return Routing(
            Slots.chosen_by_experts(tokens, weights),
            choices=mtf.reduce_sum(taken, output_shape=[*apart, experts]),
            dropped=wanting - served,
            droppable=wanting,
            balance=mtf.zeros(tokens.mesh, apart),
        )
