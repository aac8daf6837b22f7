"""Every micro-batch passes all layers in order, and the bubble is what the papers say."""

from __future__ import annotations

import numpy as np
import pytest

from meshtf.layers import PipelineSchedule

SCHEDULES = [(1, 1, 1), (1, 3, 2), (2, 1, 1), (4, 2, 1), (3, 8, 1), (2, 6, 3), (4, 8, 2), (4, 4, 4)]


@pytest.mark.parametrize(("stages", "microbatches", "rounds"), SCHEDULES)
def test_a_micro_batch_passes_every_group_of_layers_in_order(stages: int, microbatches: int, rounds: int) -> None:
    """Each stage is given either a new micro-batch or what its neighbour had in the step before."""
    schedule = PipelineSchedule(stages, microbatches, rounds)
    buffer: list[tuple[int, int] | None] = [None] * stages
    finished = []
    for step in range(schedule.num_steps):
        now: list[tuple[int, int] | None] = [None] * stages
        for stage in range(stages):
            microbatch, group = schedule.microbatches[step, stage], schedule.rounds[step, stage] * stages + stage
            if not schedule.is_useful[step, stage]:
                assert not schedule.takes_from_neighbour[step, stage]
                continue
            given = buffer[stage - 1] if schedule.takes_from_neighbour[step, stage] else (microbatch, -1)
            assert given == (microbatch, group - 1)
            now[stage] = (microbatch, group)
        if now[-1] is not None and now[-1][1] == stages * rounds - 1:
            finished.append(now[-1][0])
        buffer = now
    assert finished == list(range(microbatches))


@pytest.mark.parametrize(("stages", "microbatches", "rounds"), SCHEDULES)
def test_the_bubble(stages: int, microbatches: int, rounds: int) -> None:
    schedule = PipelineSchedule(stages, microbatches, rounds)
    assert schedule.num_steps == microbatches * rounds + stages - 1
    assert np.sum(schedule.is_useful) == stages * microbatches * rounds
    assert schedule.bubble == (stages - 1) / (microbatches * rounds + stages - 1)


def test_indices_are_in_range_in_the_bubble_too() -> None:
    schedule = PipelineSchedule(4, 8, 2)
    assert schedule.microbatches.dtype == schedule.rounds.dtype == np.int32
    assert (schedule.microbatches.min(), schedule.microbatches.max()) == (0, 7)
    assert (schedule.rounds.min(), schedule.rounds.max()) == (0, 1)


def test_what_a_schedule_refuses() -> None:
    with pytest.raises(ValueError, match="num_microbatches must be a positive integer, and is 0"):
        PipelineSchedule(2, 0)
    with pytest.raises(ValueError, match=r"num_stages must be an integer, and is 2\.0"):
        PipelineSchedule(2.0, 4)  # type: ignore[arg-type]
    fact = r"num_microbatches must be a multiple of num_stages, 4, and is 10"
    with pytest.raises(ValueError, match=rf"{fact}; the nearest that fit: \[8, 12\]; or use one round"):
        PipelineSchedule(4, 10, 2)
