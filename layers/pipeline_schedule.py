"""The schedule of a pipeline: which layers of which micro-batch each stage works on, step by step.

It holds numbers, and no tensors.
"""

from __future__ import annotations

import dataclasses
import functools

import gin
import numpy as np

from meshtf.field_checks import check_kinds, check_sizes


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class PipelineSchedule:
    """Micro-batches that pass from stage to stage, one stage per step (Huang et al. 2018).

    With one round, each stage has `layers / num_stages` neighbouring layers, and every micro-batch passes the stages
    once. With several rounds the schedule is circular. Each stage has `num_rounds` groups of layers, which are not
    neighbours, and a micro-batch that leaves the last stage enters the first one again. A step is then `num_rounds`
    times shorter, and so is the time in which stages wait.

    Attributes:
      num_stages: the size of the dimension `stage`, which a layout splits.
      num_microbatches: the number of parts of the batch; with several rounds a multiple of `num_stages`.
      num_rounds: the number of groups of layers of each stage.

    Examples:
      >>> schedule = mtf.layers.PipelineSchedule(num_stages=2, num_microbatches=4)
      >>> schedule.is_useful
      array([[ True, False],
             [ True,  True],
             [ True,  True],
             [ True,  True],
             [False,  True]])
    """

    num_stages: int
    num_microbatches: int
    num_rounds: int = 1

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "num_stages", "num_microbatches", "num_rounds")
        if self.num_rounds > 1 and self.num_microbatches % self.num_stages:
            below = self.num_microbatches - self.num_microbatches % self.num_stages
            fitting = [n for n in (below, below + self.num_stages) if n]
            raise ValueError(
                f"PipelineSchedule: in a circular schedule ({self.num_rounds} rounds) num_microbatches must be a "
                f"multiple of num_stages, {self.num_stages}, and is {self.num_microbatches}; the nearest that fit: "
                f"{fitting}; or use one round"
            )

    @property
    def num_steps(self) -> int:
        """The steps of the forward pass; the backward pass has as many."""
        return self.num_microbatches * self.num_rounds + self.num_stages - 1

    @property
    def bubble(self) -> float:
        """The share of stage-steps that compute nothing useful.

        It is (K-1) / (MR+K-1) for K stages, M micro-batches and R rounds.
        """
        return np.count_nonzero(~self.is_useful) / self.is_useful.size

    @functools.cached_property
    def is_useful(self) -> np.ndarray:
        """bool [step, stage]: whether the stage works on a micro-batch."""
        turns = self._turns
        return (turns >= 0) & (turns < self.num_microbatches * self.num_rounds)

    @functools.cached_property
    def rounds(self) -> np.ndarray:
        """int32 [step, stage]: the group of its layers that the stage applies."""
        return self._places[1]

    @functools.cached_property
    def microbatches(self) -> np.ndarray:
        """int32 [step, stage]: the micro-batch that the stage works on."""
        group, _, place = self._places
        return group * self.num_stages + place if self.num_rounds > 1 else np.clip(self._turns, 0, self._last_turn)

    @functools.cached_property
    def takes_from_neighbour(self) -> np.ndarray:
        """bool [step, stage]: whether the stage's input is the result of the stage before it, in the step before."""
        is_first = np.arange(self.num_stages) == 0
        return self.is_useful & ~(is_first & (self.rounds == 0))

    @property
    def _turns(self) -> np.ndarray:
        """The number of useful steps that each stage has had before each step.

        The bubble is below 0 and above the last turn.
        """
        return np.arange(self.num_steps, dtype=np.int32)[:, None] - np.arange(self.num_stages, dtype=np.int32)

    @property
    def _last_turn(self) -> int:
        return self.num_microbatches * self.num_rounds - 1

    @property
    def _places(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The group of micro-batches that go round together, the round, and the place in the group, for each turn."""
        turns = np.clip(self._turns, 0, self._last_turn)
        if self.num_rounds == 1:
            return turns, np.zeros_like(turns), np.zeros_like(turns)
        in_group = turns % (self.num_rounds * self.num_stages)
        group = turns // (self.num_rounds * self.num_stages)
        return group, in_group // self.num_stages, in_group % self.num_stages
