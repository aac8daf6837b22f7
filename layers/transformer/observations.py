"""Observations of a stack's sublayers: losses and statistics that they return in addition to their results."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import meshtf as mtf

AUXILIARY_LOSS = "auxiliary_loss"

Metrics = dict[str, tuple[mtf.Tensor, mtf.Tensor]]


@dataclasses.dataclass(frozen=True)
class Observations:
    """The observations of all layers.

    Attributes:
      scalars: float32 [layers], or [layers, n], keyed by `<sublayer>/<name>`. An "auxiliary_loss" is added to the
        training loss; the others are for monitoring.
    """

    scalars: Mapping[str, mtf.Tensor] = dataclasses.field(default_factory=dict)

    def under(self, scope: str) -> Observations:
        """The same observations by `<scope>/<sublayer>/<name>`, for a model with several stacks."""
        return Observations({f"{scope}/{name}": x for name, x in self.scalars.items()})

    def __or__(self, other: Observations) -> Observations:
        return Observations({**self.scalars, **other.scalars})

    def added_to(self, metrics: Metrics, *, is_training: bool) -> Metrics:
        """A model's metrics with these observations.

        In training, all auxiliary losses are added to the loss. Other observations are metrics.

        Observations [layers] become their mean. Vectors [layers, n] stay as they are.
        """
        losses = [x for name, x in self.scalars.items() if _last(name) == AUXILIARY_LOSS]
        values, weights = metrics["loss"]
        if is_training and losses:
            values += functools.reduce(mtf.add, map(mtf.reduce_sum, losses)).astype(values.dtype)
        others = {name: x for name, x in self.scalars.items() if _last(name) != AUXILIARY_LOSS}
        means = {name: x.mean() if x.shape.ndims == 1 else x for name, x in others.items()}
        seen = {name: (x, mtf.ones_like(x)) for name, x in means.items()}
        return {**metrics, "loss": (values, weights), **seen}


def _last(name: str) -> str:
    return name.rpartition("/")[2]
