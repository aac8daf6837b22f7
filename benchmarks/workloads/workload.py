"""What is measured in every system."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Workload:
    """A table of docs/benchmarks.md, which says what is computed.

    Attributes:
      module: its `PROGRAMS` are what is measured, by name; the first is what the others are compared with.
      title: of the picture.
      steps: of each program in a round.
      rounds: how many, unless the command says so; few where a step is heavy.
      warm_up: steps before the first round, after the first call.
    """

    module: str
    title: str
    steps: int
    rounds: int = 7
    warm_up: int = 3
