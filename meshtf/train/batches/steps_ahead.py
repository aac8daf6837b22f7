"""Training steps that are started before earlier ones are done, so that cores need not wait for the host."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import meshtf as mtf
from meshtf.errors import MeshtfError
from meshtf.train.task import Batch, Batches, Position


@dataclasses.dataclass(frozen=True)
class StartedStep:
    """One step.

    Attributes:
      features: its batch.
      position: the position before the batch.
      results: waits for the results of the step, or raises its error.
    """

    features: Batch
    position: Position
    results: Callable[[], Mapping[str, Any]]


class StepsAhead:
    """The steps that have been started and not been waited for, oldest first.

    Args:
      program: the training step.
      batches: the batches that it is fed.
    """

    def __init__(self, program: mtf.Function, batches: Batches) -> None:
        self._program, self._batches = program, batches
        self._most = program.lowering.mesh_impl.steps_ahead + 1
        self._started: collections.deque[StartedStep] = collections.deque()
        self._has_failed = False

    def __len__(self) -> int:
        return len(self._started)

    def start(self, most: int) -> None:
        """Starts steps until `most` are under way, or as many as the mesh can use. It starts none after one that
        fails.
        """
        while len(self) < min(most, self._most) and not self._has_failed:
            position = self._batches.position
            features = next(self._batches)
            self._started.append(StartedStep(features, position, self._results(features)))

    def _results(self, features: Batch) -> Callable[[], Mapping[str, Any]]:
        """Returns a function that waits for a step's results, or raises its error. Errors of earlier steps must
        come first.
        """
        try:
            return self._program.start(**features)
        except MeshtfError as error:
            self._has_failed = True
            return functools.partial(_raise, error)

    def oldest(self) -> StartedStep:
        """Removes and returns the step that was started first."""
        return self._started.popleft()


def _raise(error: MeshtfError) -> NoReturn:
    raise error
