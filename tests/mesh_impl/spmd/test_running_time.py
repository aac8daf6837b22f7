from __future__ import annotations

from meshtf.mesh_impl.spmd._running_time import RunningTime


def test_a_pause_counts_as_the_longest_that_a_look_may_take() -> None:
    times = iter([100.0, 101.0, 102.5, 5000.0, 5001.0])
    running = RunningTime(lambda: next(times))
    assert [running.advance(2.0) for _ in range(4)] == [1.0, 2.5, 4.5, 5.5]
