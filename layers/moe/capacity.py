"""Capacity: the number of places that an expert has for the tokens of a group."""

from __future__ import annotations

import dataclasses
import decimal
import fractions
import math

import gin

from meshtf.errors import ShapeError
from meshtf.field_checks import check_above_zero, check_kinds

_TOO_SMALL = """\
an expert's capacity is below one token: {tokens} tokens in a group · {choices} choices · factor {factor:g} / \
{experts} experts = {capacity:.3g}. Make groups of at least {least} tokens (MixtureOfExperts.group_size), raise \
the factor to {enough:.3g}, have fewer experts, or drop nothing (MixtureOfExperts.capacity = None)"""

_UP = decimal.Context(prec=3, rounding=decimal.ROUND_CEILING)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class Capacity:
    """A multiple of the places that every expert needs if the load is even.

    Attributes:
      factor: the multiple in training.
      evaluation_factor: the multiple outside training; by default the same.
    """

    factor: float = 1.0
    evaluation_factor: float | None = None

    def __post_init__(self) -> None:
        check_kinds(self)
        check_above_zero(self, "factor", "evaluation_factor")

    def __call__(self, num_tokens: int, num_choices: int, num_experts: int, *, is_training: bool) -> int:
        """The places of one expert, for a group of tokens with `num_choices` choices each, rounded up.

        Raises:
          ShapeError: there is less than one place in training. A text to decode or to score may be shorter than
            training's groups, and is given one.
        """
        is_same = is_training or self.evaluation_factor is None
        factor = self.factor if is_same else self.evaluation_factor
        assert factor is not None
        # As a decimal: the product of 100 and the float 1.1 is a little above 110, and would be rounded up to 111.
        exact = fractions.Fraction(str(factor))
        capacity = num_tokens * num_choices * exact / num_experts
        if is_training and capacity < 1:
            raise ShapeError(
                _TOO_SMALL.format(
                    tokens=num_tokens,
                    choices=num_choices,
                    factor=factor,
                    experts=num_experts,
                    capacity=float(capacity),
                    least=math.ceil(num_experts / (num_choices * exact)),
                    enough=float(_UP.divide(decimal.Decimal(num_experts), num_tokens * num_choices)),
                )
            )
        return min(num_tokens, math.ceil(capacity))
