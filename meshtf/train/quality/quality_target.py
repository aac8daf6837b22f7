"""The quality at which the clock stops."""

from __future__ import annotations

import dataclasses
import math

import gin

from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError, configuration_errors
from meshtf.train.evaluation import Evaluation
from meshtf.train.trainer import Trainer

_NO_SUCH_METRIC = """\
QualityTarget.metric is "{metric}", which an evaluation does not have. It has {known}{hint}"""

_MODES = ("max", "min")


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class QualityTarget:
    """A value that a metric of held-out examples must reach.

    Attributes:
      benchmark: the name of the task in logs.
      metric: a metric of the held-out examples, such as "accuracy".
      value: the value to reach.
      mode: "max" if the metric must be at least the value, "min" if it must be at most the value.
    """

    benchmark: str
    metric: str
    value: float
    mode: str = "max"

    def __post_init__(self) -> None:
        for name in ("benchmark", "metric"):
            given = getattr(self, name)
            if not isinstance(given, str) or not given:
                raise ConfigurationError(f"QualityTarget.{name} must be a name, and is {given!r}")
        if isinstance(self.value, bool) or not isinstance(self.value, int | float) or not math.isfinite(self.value):
            raise ConfigurationError(f"QualityTarget.value must be a finite number, and is {self.value!r}")
        if self.mode not in _MODES:
            raise ConfigurationError(f'QualityTarget.mode must be "max" or "min", and is {self.mode!r}')

    def __str__(self) -> str:
        return f"{self.metric} {'at least' if self.mode == 'max' else 'at most'} {self.value:g}"

    def check(self, trainer: Trainer) -> None:
        """Checks that evaluations have the metric.

        Raises:
          ConfigurationError: if they have not.
        """
        known = trainer.held_out_metrics()
        if self.metric not in known:
            hint = nearest(self.metric, known)
            raise ConfigurationError(
                _NO_SUCH_METRIC.format(metric=self.metric, known=", ".join(known), hint=hint or ".")
            )

    def quality_of(self, evaluation: Evaluation) -> float:
        """Returns the metric, or NaN if nothing counts in it: all its weights are 0, or no object is there."""
        return evaluation.means.get(self.metric, math.nan)

    def is_reached_by(self, quality: float) -> bool:
        """Tells whether a value of the metric is good enough. A NaN never is."""
        return quality >= self.value if self.mode == "max" else quality <= self.value


def configured_target() -> QualityTarget:
    """Returns the target that gin's present configuration describes.

    Raises:
      ConfigurationError: if a parameter is missing or wrong.
    """
    with configuration_errors():
        return QualityTarget()  # type: ignore[call-arg]  # gin fills in the arguments
