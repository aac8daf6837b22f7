"""The choices of a sweep, as a gin file gives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gin
from gin import config as gin_config

from meshtf.number_checks import is_integer, is_number
from meshtf.train.configuration import ConfigurationError, configuration_errors
from meshtf.train.gin_files.bindings import MACRO, present_bindings
from meshtf.train.monitoring.metrics import HELD_OUT

_NOTHING = """\
the sweep has nothing to choose: give Sweep.choices, Sweep.ranges or Sweep.log_ranges, as in
Sweep.choices = {"AdamWOptimizer.learning_rate": [1e-3, 3e-3]}"""


@gin.configurable(module="meshtf.train")
class Sweep:
    """The bindings that differ between the trials of a sweep, and how trials are judged.

    Args:
      choices: for the name of a binding, or of a macro, its values. A grid takes every combination.
      ranges: for the name of a binding its least and its greatest number. Each sample draws one between them. Whole
        numbers are drawn between two whole numbers.
      log_ranges: the same, but the logarithm of the number is drawn uniformly.
      metric: the metric by which trials are judged: a name in metrics.jsonl.
      mode: "min" if less is better, "max" if more is.
      stop_early: the rule by which a hopeless trial ends early. "median": its best value is worse than the median of
        the earlier trials at the same step. "halving": asynchronous successive halving (Li et al. 2018), which
        continues the best trials of each rung. None: every trial runs to its end.
      warm_up_steps: the step before which no trial ends early.
      start_up_trials: with "median", the number of finished trials before which no trial ends early.

    Raises:
      ConfigurationError: if there is nothing to choose, or a value is impossible.

    Examples:
      >>> from meshtf.train.sweeps.sweep import Sweep
      >>> Sweep(choices={"Training.seed": [1, 2]}).mode
      'min'
    """

    def __init__(
        self,
        *,
        choices: Mapping[str, Sequence[Any]] | None = None,
        ranges: Mapping[str, Sequence[float]] | None = None,
        log_ranges: Mapping[str, Sequence[float]] | None = None,
        metric: str = f"{HELD_OUT}loss",
        mode: Literal["min", "max"] = "min",
        stop_early: Literal["median", "halving"] | None = None,
        warm_up_steps: int = 0,
        start_up_trials: int = 4,
    ) -> None:
        self.choices, self.ranges, self.log_ranges = choices or {}, ranges or {}, log_ranges or {}
        self.metric, self.mode, self.stop_early = metric, mode, stop_early
        self.warm_up_steps, self.start_up_trials = warm_up_steps, start_up_trials
        self._check()

    @property
    def names(self) -> list[str]:
        """The names of the bindings that differ."""
        return [*self.choices, *self.ranges, *self.log_ranges]

    def is_better(self, value: float, other: float) -> bool:
        """Tells whether a value is better than another."""
        return value < other if self.mode == "min" else value > other

    def best(self, values: Sequence[float]) -> float:
        """Returns the best of some values."""
        return min(values) if self.mode == "min" else max(values)

    def _check(self) -> None:
        for kind in ("choices", "ranges", "log_ranges"):
            given = getattr(self, kind)
            if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
                raise ConfigurationError(f"Sweep.{kind} must be a dict with names of bindings, and is {given!r}")
        if not self.names:
            raise ConfigurationError(_NOTHING)
        for name in self.names:
            if self.names.count(name) > 1:
                raise ConfigurationError(f"the sweep gives {name} twice; choices and ranges must differ in their names")
        for name, values in self.choices.items():
            if not isinstance(values, list | tuple) or not values:
                raise ConfigurationError(
                    f'Sweep.choices["{name}"] must be a list of one value or more, and is {values!r}'
                )
        for kind, ranges in (("ranges", self.ranges), ("log_ranges", self.log_ranges)):
            for name, ends in ranges.items():
                _check_range(f'Sweep.{kind}["{name}"]', ends, is_log=kind == "log_ranges")
        if self.mode not in ("min", "max"):
            raise ConfigurationError(f'Sweep.mode must be "min" or "max", and is {self.mode!r}')
        if self.stop_early not in (None, "median", "halving"):
            raise ConfigurationError(
                f'Sweep.stop_early must be "median", "halving" or None, and is {self.stop_early!r}'
            )
        if not is_integer(self.warm_up_steps, 0) or not is_integer(self.start_up_trials, 0):
            raise ConfigurationError(
                "Sweep.warm_up_steps and Sweep.start_up_trials must be integers, 0 or more, and are "
                f"{self.warm_up_steps!r} and {self.start_up_trials!r}"
            )
        if not isinstance(self.metric, str):
            raise ConfigurationError(f"Sweep.metric must be the name of a metric, and is {self.metric!r}")


def configured_sweep() -> Sweep:
    """Returns the sweep that gin's present configuration describes. Raises ConfigurationError as `Sweep` does."""
    for binding in present_bindings():
        if binding.name == "Sweep.choices":
            gin.bind_parameter(binding.name, _as_written(binding.value))
    with configuration_errors():
        return Sweep()


class _Written(str):
    """A reference as text, such as `@AdamOptimizer()`. Gin would make an object, which no flag of a trial can hold."""

    __repr__ = str.__str__


def _as_written(value: Any) -> Any:
    """Returns a value with macros replaced by their values, and other references by their text."""
    if isinstance(value, gin_config.ConfigurableReference):
        is_macro = value.config_key[1] == MACRO
        return _as_written(gin.query_parameter(f"{value.scoped_selector}.value")) if is_macro else _Written(value)
    if isinstance(value, dict):
        return {name: _as_written(each) for name, each in value.items()}
    return type(value)(map(_as_written, value)) if isinstance(value, list | tuple) else value


def _check_range(name: str, ends: Sequence[Any], *, is_log: bool) -> None:
    is_pair = isinstance(ends, list | tuple) and len(ends) == 2
    if not is_pair or not all(map(is_number, ends)):
        raise ConfigurationError(f"{name} must be two numbers, the least and the greatest, and is {ends!r}")
    if ends[0] >= ends[1]:
        raise ConfigurationError(f"{name} is empty: {ends[0]} is not less than {ends[1]}")
    if is_log and ends[0] <= 0:
        raise ConfigurationError(f"{name} must be above 0, to be drawn on a log scale, and begins at {ends[0]}")
