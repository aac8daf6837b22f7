"""The facts about a loop over the steps of a pipeline."""

from __future__ import annotations

import dataclasses

from meshtf.dimension import Dimension


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class PipelineNote:
    """The facts about a loop over the steps of a pipeline and about its gradient's loop. See `mtf.PipelineSteps`.

    num_idle: pairs of a step and a stage in which the stage computes nothing useful.
    """

    stage: Dimension
    num_microbatches: int
    num_rounds: int
    num_steps: int
    num_idle: int

    @property
    def bubble(self) -> float:
        """The share of stage-steps that compute nothing useful."""
        return self.num_idle / (self.num_steps * self.stage.size)
