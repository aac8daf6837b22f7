"""The time that a run spends on evaluations, apart from its steps."""

from __future__ import annotations

import dataclasses

from meshtf.errors import counted
from meshtf.train.monitoring.progress import duration

SECONDS_OF_EVALUATION = "evaluation_seconds"
"""The field of a line of metrics for the seconds that its evaluation took."""


@dataclasses.dataclass
class EvaluationTimes:
    """The seconds of each evaluation of a run. The first one compiles its program, so it takes longest."""

    seconds: list[float] = dataclasses.field(default_factory=list)

    def seconds_left(self, step: int, num_steps: int, every: int | None) -> float:
        """The seconds that the evaluations after `step` will take: after `every` steps, and after the last one.

        It is 0 before the first evaluation, since no time has been measured.
        """
        if not self.seconds or step >= num_steps:
            return 0.0
        measured = self.seconds[1:] or self.seconds
        left = 1 if every is None else num_steps // every - step // every + bool(num_steps % every)
        return left * sum(measured) / len(measured)

    def __str__(self) -> str:
        total = sum(self.seconds)
        return f"{counted(len(self.seconds), 'evaluation')} in {short_duration(total)}, beside the time of the steps"


def short_duration(seconds: float) -> str:
    """Returns a text such as `0.12 s`, `45 s` or `12 min`."""
    return f"{seconds:.2g} s" if seconds < 10 else duration(seconds)
