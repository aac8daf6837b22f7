"""The steps of a pipeline, over which a scan runs.

A pipeline of 2 stages and 3 micro-batches takes 4 steps. In a step, each stage works on a different micro-batch:

    step       0    1    2    3
    stage 0    m0   m1   m2   -
    stage 1    -    m0   m1   m2
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from meshtf.dimension import Dimension
from meshtf.errors import GraphError, ShapeError
from meshtf.graph.tensor import Tensor
from meshtf.planning.pipeline_note import PipelineNote


@dataclasses.dataclass(frozen=True, eq=False)
class PipelineSteps:
    """Marks the dimension of an `mtf.scan` as the steps of a pipeline.

    The computation stays the same. The report then shows the scan and its gradient as a pipeline: how long its stages
    wait, and what it sends and keeps.

    Attributes:
      dim: the dimension of the steps.
      stage: a dimension of a carried value. Each of its positions works on a different micro-batch.
      is_useful: bool [step, stage], whether the stage works on a micro-batch in the step, or only waits.
      num_microbatches: how many micro-batches pass through all stages.
      num_rounds: how often each micro-batch passes through all stages.

    Examples:
      >>> stage, schedule = mtf.Dimension("stage", 2), mtf.layers.PipelineSchedule(num_stages=2, num_microbatches=3)
      >>> steps = mtf.PipelineSteps(mtf.Dimension("step", 4), stage, schedule.is_useful, num_microbatches=3)
      >>> steps.is_useful
      array([[ True, False],
             [ True,  True],
             [ True,  True],
             [False,  True]])
    """

    dim: Dimension
    stage: Dimension
    is_useful: np.ndarray
    num_microbatches: int
    num_rounds: int = 1

    def note(self, carried: Sequence[Tensor]) -> PipelineNote:
        """Checks the steps, and returns the facts about the pipeline for the plan.

        Args:
          carried: the values that the scan carries from step to step.

        Raises:
          ShapeError: is_useful does not fit the dimensions, or nothing carried has the stages.
          GraphError: `is_useful` does not have one useful step for each micro-batch and round in every stage.
        """
        if not any(x.shape.has(self.stage.name) for x in carried):
            raise ShapeError(f'PipelineSteps: nothing that is carried from step to step has dimension "{self.stage}"')
        shape = (self.dim.size, self.stage.size)
        if self.is_useful.shape != shape:
            raise ShapeError(
                f'PipelineSteps: is_useful has shape {list(self.is_useful.shape)}, and "{self.dim}" steps of '
                f'"{self.stage}" stages need {list(shape)}'
            )
        wanted, found = self.num_microbatches * self.num_rounds, np.count_nonzero(self.is_useful, axis=0)
        if not np.all(found == wanted):
            raise GraphError(
                f"PipelineSteps: {self.num_microbatches} micro-batches in {self.num_rounds} rounds are {wanted} useful "
                f"steps of each stage, and is_useful has {found.tolist()}"
            )
        num_idle = self.is_useful.size - wanted * self.stage.size
        return PipelineNote(self.stage, self.num_microbatches, self.num_rounds, self.dim.size, num_idle)
