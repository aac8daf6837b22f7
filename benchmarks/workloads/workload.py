"""A workload that is measured in every system."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Workload:
    """A table of docs/benchmarks.md, which says what is computed.

    Attributes:
      module: a module whose `PROGRAMS` are measured, by name; the others are compared with the first.
      title: the title of the picture.
      steps: the steps of each program in a round.
      rounds: the number of rounds, unless the command says another; few where a step is heavy.
      warm_up: steps before the first round, after the first call.
    """

    module: str
    title: str
    steps: int
    rounds: int = 7
    warm_up: int = 3
