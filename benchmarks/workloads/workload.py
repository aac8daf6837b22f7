"""A workload to measure in every system."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Workload:
    """A workload with its table in docs/benchmarks.md, which describes the computation.

    Attributes:
      module: a module whose `PROGRAMS` are measured, by name; the others are compared with the first.
      title: the title of the picture.
      steps: the steps of each program in a round.
      rounds: the default number of rounds; few if a step is slow.
      warm_up: steps before the first round, after the first call.
    """

    module: str
    title: str
    steps: int
    rounds: int = 7
    warm_up: int = 3
