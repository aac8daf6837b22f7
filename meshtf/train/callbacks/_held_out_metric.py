"""A metric on the held-out examples that decides what callbacks do."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError
from meshtf.train.evaluation import Evaluation
from meshtf.train.trainer import Trainer

MODES = ("min", "max")

_UNKNOWN = """\
{owner}.metric is {name!r}, which the model does not give{hint}
It is one of the metrics of the held-out examples: {known}."""

_ONE_EVALUATION = """\
{owner} needs evaluations during training, but the only one is at the end: make Training.evaluate_every, the number \
of steps between two evaluations, less than Training.num_steps, {num_steps}."""


@dataclasses.dataclass(frozen=True)
class HeldOutMetric:
    """A metric of the held-out examples, whose least or greatest value is the best.

    Raises:
      ConfigurationError: if there is no such mode, or the name is not a text.
    """

    owner: str
    name: str
    mode: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigurationError(f'{self.owner}.metric must be a name, such as "loss", and is {self.name!r}')
        if self.mode not in MODES:
            raise ConfigurationError(
                f'{self.owner}.mode must be "min" or "max", and is {self.mode!r}{nearest(str(self.mode), MODES)}'
            )

    def check(self, trainer: Trainer) -> None:
        """Checks that the metric fits a training.

        Raises:
          ConfigurationError: if the model has no such metric, or if the only evaluation is at the end.
        """
        known = trainer.held_out_metrics()
        if self.name not in known:
            hint = nearest(self.name.removeprefix("held_out_"), known)
            raise ConfigurationError(
                _UNKNOWN.format(owner=self.owner, name=self.name, hint=hint, known=", ".join(known))
            )
        training = trainer.training
        if training.evaluate_every is None or training.evaluate_every >= training.num_steps:
            raise ConfigurationError(_ONE_EVALUATION.format(owner=self.owner, num_steps=training.num_steps))

    def value(self, evaluation: Evaluation) -> float | None:
        """Returns the metric, or None if all weights are 0 or it is not finite."""
        value = evaluation.means.get(self.name)
        return value if value is not None and math.isfinite(value) else None

    def own_state(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns a callback's state in a checkpoint if it has these facts. If not, the callback begins anew, and the
        result is {}.
        """
        return state if self.facts.items() <= state.items() else {}

    @property
    def facts(self) -> dict[str, str]:
        """The part of a callback's state by which `own_state` knows it."""
        return {"metric": self.name, "mode": self.mode}

    def is_better(self, value: float, than: float | None, by: float = 0.0) -> bool:
        """Tells whether a value is better than another one by more than `by`. Any value is better than None."""
        if than is None:
            return True
        return value < than - by if self.mode == "min" else value > than + by
