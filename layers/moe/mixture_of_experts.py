"""The mixture of experts as a sublayer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import gin

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import GraphError, counted
from meshtf.field_checks import check, check_fractions, check_kinds, check_not_negative, check_sizes
from meshtf.layers.activations import Activation, activation_function
from meshtf.layers.initializers import DenseInitializer
from meshtf.layers.moe._expert_layers import ExpertLayers
from meshtf.layers.moe._slots import Slots
from meshtf.layers.moe._tallies import Tallies, observations, tallied
from meshtf.layers.moe.capacity import Capacity
from meshtf.layers.moe.dispatch import Dispatch, GatherDispatch
from meshtf.layers.moe.gates import Gates
from meshtf.layers.moe.routers import Router, Top2Router
from meshtf.layers.moe.token_groups import TokenGroups, group_size_within
from meshtf.layers.transformer.context import Context, DecodingSpace
from meshtf.layers.transformer.feed_forward import FeedForward

_NOT_CAUSAL = """\
{router}: which tokens an expert takes depends on later tokens, which a causal model does not have when it decodes; \
use this router in encoders only, and another one here"""


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class MixtureOfExperts:
    """Many feed-forward layers (experts). Each token goes through a few of them.

    The design is that of Lepikhin et al. 2020 and Fedus et al. 2021.

    Tokens are split as the batch is, by the rule of its name. Experts are split by a rule for `experts`, over the same
    mesh axis or over others. Experts over the batch's axis are reached by an alltoall, and experts over another axis by
    a sum.

    Attributes:
      num_experts: the size of the dimension `experts`.
      d_ff: the size of each expert's dimension `d_ff`.
      router: decides to which experts a token goes.
      gates: computes the scores by which the router decides.
      capacity: how many places an expert has for the tokens of a group. A token without a place gets zeros, so that a
        residual connection passes it on unchanged. With None, and in decoding, no token is dropped.
      group_size: the largest number of tokens in a group, which compete for places: a part of a sequence, or several
        sequences; by default one sequence.
      balance_loss: coefficient of the loss that makes the load even.
      dispatch: how tokens are brought to the experts' places.
      activation: as in `FeedForward`; also functions of tensors, such as `ClampedSwish`.
      use_bias: whether the experts' products add biases.
      shared: a feed-forward layer beside the experts, through which all tokens go (DeepSeek-AI 2024).
      dropout_rate: the share that each expert drops between its products.
      kernel_initializer: the initializer of the experts' kernels.
      name: the scope of `router`, `wi` and `wo`, and of the scope `shared`.
    """

    num_experts: int
    d_ff: int
    router: Router = dataclasses.field(default_factory=Top2Router)
    gates: Gates = dataclasses.field(default_factory=Gates)
    capacity: Capacity | None = dataclasses.field(default_factory=Capacity)
    group_size: int | None = None
    balance_loss: float = 0.01
    dispatch: Dispatch = dataclasses.field(default_factory=GatherDispatch)
    activation: Activation | Sequence[Activation] = "relu"
    use_bias: bool = False
    shared: FeedForward | None = None
    dropout_rate: float = 0.0
    kernel_initializer: DenseInitializer | None = None
    name: str = "mixture_of_experts"

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "num_experts", "d_ff", "group_size")
        is_one_or_several = callable(self.activation) or isinstance(self.activation, str | list | tuple | None)
        check(self, "activation", is_one_or_several, "an activation, or a list of several")
        check_fractions(self, "dropout_rate")
        check_not_negative(self, "balance_loss")
        if self.router.num_choices > self.num_experts:
            raise ValueError(
                f"MixtureOfExperts: a token goes to {counted(self.router.num_choices, 'expert')}, but num_experts is "
                f"{self.num_experts}; raise num_experts, or choose fewer"
            )
        for each in self.activations:
            activation_function(each)

    @property
    def num_states(self) -> int:
        return 0

    @property
    def experts(self) -> mtf.Dimension:
        return mtf.Dimension("experts", self.num_experts)

    @language_function
    def __call__(self, x: mtf.Tensor, context: Context) -> mtf.Tensor:
        return self.tallied(x, context)[0]

    def observed(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, Mapping[str, mtf.Tensor]]:
        """The result of a call, and observations: float32 scalars, and vectors [_experts].

        - "auxiliary_loss": a term to add to the training loss. The others are for monitoring.
        - "dropped": the share of choices that found no place.
        - "largest_load": the load of the busiest expert; 1 if all are even.
        - "balance": the balance of loads and probabilities; 1 if both are even.
        - "gate_entropy": the entropy in nats; log(num_experts) if all are equally probable.
        - "load": the share of the choices that name each expert.
        - "importance": the mean probability of each expert.
        """
        y, tallies = self.tallied(x, context)
        return y, self.observations(tallies)

    def tallied(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, Tallies]:
        """The result of a call, and sums over the tokens, from which `observations` are made."""
        # Experts that choose their tokens look at all tokens of a group, so earlier choices would depend on later
        # tokens.
        if not self.router.is_causal and context.mask.is_causal:
            raise GraphError(_NOT_CAUSAL.format(router=type(self.router).__name__))
        groups = TokenGroups.of(x.shape[:-1], self.group_size, context.part)
        y, tallies = mixture_of_experts(x, self, groups, context.tokens.segments, is_training=context.is_training)
        return self._with_shared(y, x, context), tallies

    def observations(self, tallies: Mapping[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        return observations(tallies, self.balance_loss, self.gates.z_loss)

    def together(self, num_sequences: int, length: int) -> int:
        return -(-group_size_within(num_sequences, length, self.group_size) // length)

    def fill(self, x: mtf.Tensor, context: Context) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        # If places were limited, what a prompt's tokens get would depend on the longest prompt beside it.
        return dataclasses.replace(self, capacity=None)(x, context), []

    def start(self, space: DecodingSpace, context: Context) -> list[mtf.Tensor]:
        return []

    def step(
        self, x: mtf.Tensor, context: Context, position: mtf.Tensor, state: list[mtf.Tensor]
    ) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        if not self.router.is_causal:
            raise GraphError(_NOT_CAUSAL.format(router=type(self.router).__name__))
        groups = TokenGroups.single(x.shape[:-1])
        # With this factor each expert has places for all tokens.
        enough = None if self.capacity is None else Capacity(float(self.num_experts))
        layer = dataclasses.replace(self, capacity=enough)
        y = mixture_of_experts(x, layer, groups, context.tokens.segments, is_training=False)[0]
        return self._with_shared(y, x, context), state

    def _with_shared(self, y: mtf.Tensor, x: mtf.Tensor, context: Context) -> mtf.Tensor:
        if self.shared is None:
            return y
        with mtf.variable_scope("shared"):
            return y + self.shared(x, context)

    def places(self, num_tokens: int, *, is_training: bool) -> int | None:
        """The places of an expert, for a group of `num_tokens` tokens; None for as many as are wanted."""
        if self.capacity is None:
            return None
        return self.capacity(num_tokens, self.router.num_choices, self.num_experts, is_training=is_training)

    @property
    def activations(self) -> Sequence[Activation]:
        given = self.activation
        return [given] if given is None or isinstance(given, str) or callable(given) else list(given)


@language_function
def mixture_of_experts(
    x: mtf.Tensor, layer: MixtureOfExperts, groups: TokenGroups, segments: mtf.Tensor | None, *, is_training: bool
) -> tuple[mtf.Tensor, Tallies]:
    """Sends each token through its experts.

    Args:
      x: [token_dims, d_model].
      layer: the settings.
      groups: the groups of the tokens.
      segments: int32 over token_dims or fewer, 0 for padding, which goes to no expert; None if nothing is padding.
      is_training: whether routing may be random, and which factor of `Capacity` applies.

    Returns:
      The experts' results, in the shape of x, and the sums of `MixtureOfExperts.tallied`.

    Raises:
      ShapeError: an expert has less than one place in training.
    """
    tokens, is_routed = groups.grouped(x), groups.is_routed(segments)
    logits = layer.gates.logits(tokens, layer.num_experts, is_training=is_training)
    log_scores = layer.gates.log_scores(logits)
    probabilities = log_scores.softmax(logits.shape[-1])
    capacity = layer.places(groups.tokens.size, is_training=is_training)
    scores = layer.gates.scores(log_scores, probabilities)
    routing = layer.router(scores, is_routed, capacity, is_training=is_training)
    dispatched = layer.dispatch.to_slots(tokens, routing.slots)
    # Experts see slots and not tokens, so they need not know what the router decided.
    given = _through_experts(dispatched, layer, routing.slots, groups.at_experts, is_training=is_training)
    y = layer.dispatch.to_tokens(given, routing.slots, groups.tokens)
    tallies = tallied(routing, log_scores, probabilities, is_routed, logits=logits if layer.gates.z_loss > 0 else None)
    return groups.ungrouped(y), tallies


def _through_experts(
    x: mtf.Tensor, layer: MixtureOfExperts, slots: Slots, groups: mtf.Dimension, *, is_training: bool
) -> mtf.Tensor:
    """Applies the experts to slots: [.., group, slots, d_model] -> the same shape."""
    d_ff = mtf.Dimension("d_ff", layer.d_ff)
    experts = ExpertLayers(
        layer.experts, d_ff, layer.activations, layer.use_bias, layer.dropout_rate, layer.kernel_initializer
    )
    if slots.sizes is not None:
        return experts.by_sizes(x, slots.sizes, is_training=is_training)
    assert slots.capacity is not None
    *apart, _, _, d_model = x.shape
    # The new names move the split from the groups to the experts: an alltoall, and one back.
    at_experts = x.reshape([*apart, groups, layer.experts, mtf.Dimension("capacity", slots.capacity), d_model])
    return experts.by_experts(at_experts, is_training=is_training).reshape(x.shape)
