"""A router that takes a token's experts from only a few groups of experts (DeepSeek-AI 2024)."""

from __future__ import annotations

import dataclasses

import gin

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import GraphError
from meshtf.field_checks import check_kinds, check_sizes
from meshtf.layers.moe._choices import CHOICES, Choices
from meshtf.layers.moe.routing import Routing

_LEAST = 1e-20
_HIDDEN = -1e30


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class GroupLimitedRouter:
    """Takes the n experts with the largest scores in the best groups of experts, none at random.

    Experts are in groups of equal size, in their order. If each device has one group, a token goes to few devices.

    Attributes:
      num_choices: n.
      num_groups: the number of groups.
      num_chosen_groups: the number of groups from which a token's experts are taken.
      scores_of_group: the score of a group is the sum of this many of its largest (1 in DeepSeek-V2, 2 in V3).
      is_normalized: whether a token's weights sum to 1, before `scale`.
      scale: the factor of the weights.
      has_correction: whether a variable `router_correction` [_experts] is added to scores for the choice, but not for
        the weights. Training here does not change it (DeepSeek-V3 moves it by the experts' load).

    Examples:
      >>> from meshtf.layers.moe import GroupLimitedRouter
      >>> router = GroupLimitedRouter(num_choices=2, num_groups=4, num_chosen_groups=2, scores_of_group=2)
      >>> scores = mtf.ones(mesh, "batch:2 tokens:4 _experts:8") / 8.0
      >>> router(scores, None, None, is_training=False).choices.shape
      Shape[_experts:8]
    """

    num_choices: int
    num_groups: int = 1
    num_chosen_groups: int = 1
    scores_of_group: int = 1
    is_normalized: bool = False
    scale: float = 1.0
    has_correction: bool = False

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "num_choices", "num_groups", "num_chosen_groups", "scores_of_group")
        if self.num_chosen_groups > self.num_groups:
            raise ValueError(
                f"GroupLimitedRouter: num_chosen_groups = {self.num_chosen_groups} must not be above "
                f"num_groups = {self.num_groups}"
            )

    @property
    def is_causal(self) -> bool:
        return True

    @language_function
    def __call__(
        self, probabilities: mtf.Tensor, is_routed: mtf.Tensor | None, capacity: int | None, *, is_training: bool
    ) -> Routing:
        """Routes tokens by scores, which need not sum to 1.

        Raises:
          GraphError: the experts do not divide into groups, or the chosen groups have too few.
        """
        experts = probabilities.shape[-1]
        self._check(experts.size)
        candidates = mtf.stop_gradient(probabilities)
        if self.has_correction:
            candidates += mtf.get_variable(
                probabilities.mesh, "router_correction", [experts], initializer=mtf.zeros, trainable=False
            )
        _, numbers = mtf.top_k(self._allowed(candidates), experts, mtf.Dimension(CHOICES, self.num_choices))
        weights = probabilities[experts, numbers]
        if self.is_normalized:
            weights /= weights.sum(CHOICES) + _LEAST
        choices = Choices(numbers, weights if self.scale == 1.0 else weights * self.scale, experts.size)
        return Routing.of_choices(
            choices.where(is_routed), probabilities, is_routed, capacity, balances_first_only=False
        )

    def _allowed(self, scores: mtf.Tensor) -> mtf.Tensor:
        """The scores [.., _experts], and very low ones for experts that are not in the best groups."""
        if self.num_groups == self.num_chosen_groups:
            return scores
        groups = mtf.Dimension("expert_groups", self.num_groups)
        members = mtf.Dimension("group_members", scores.shape[-1].size // self.num_groups)
        grouped = scores.reshape(scores.shape[:-1] + [groups, members])
        largest, _ = mtf.top_k(grouped, members, mtf.Dimension("largest", self.scores_of_group))
        of_groups = largest.sum("largest")
        _, chosen = mtf.top_k(of_groups, groups, mtf.Dimension("chosen_groups", self.num_chosen_groups))
        is_chosen = mtf.equal(chosen, mtf.range(scores.mesh, groups)).any("chosen_groups")
        return mtf.where(is_chosen, grouped, _HIDDEN, output_shape=grouped.shape).reshape(scores.shape)

    def _check(self, num_experts: int) -> None:
        if num_experts % self.num_groups:
            raise GraphError(
                f"GroupLimitedRouter: {num_experts} experts do not divide into num_groups = {self.num_groups} groups"
            )
        members = num_experts // self.num_groups
        if self.num_choices > members * self.num_chosen_groups or self.scores_of_group > members:
            raise GraphError(
                f"GroupLimitedRouter: num_choices = {self.num_choices} experts cannot be taken from num_chosen_groups "
                f"= {self.num_chosen_groups} of {members} experts each, with scores_of_group = {self.scores_of_group}"
            )
