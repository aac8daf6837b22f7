"""Which processes a job is started again with, here without any."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from meshtf_programs.launching import restarts
from meshtf_programs.launching.job import Ended
from meshtf_programs.launching.restarts import Restarts

KILLED = 137


class Starts:
    """Ends as it is told, and keeps with which processes it was started."""

    def __init__(self, *ends: Ended) -> None:
        self._ends = list(ends)
        self.present: list[list[int]] = []

    def __call__(self, present: Sequence[int]) -> Ended:
        self.present.append(list(present))
        return self._ends.pop(0)


def ended(status: int, *left: int, is_asked: bool = False) -> Ended:
    return Ended(status, is_asked, left)


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []

    def waited(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(restarts, "signal_within", waited)
    return found


def test_all_start_again_each_time_later(waits: list[float]) -> None:
    starts = Starts(*[ended(KILLED, 0)] * 9, ended(0))
    assert Restarts(2, 9).run(starts) == 0
    assert starts.present == [[0, 1]] * 10
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_those_that_are_left_start_again() -> None:
    """Of four one dies, and of what is left the first; a status of its own is no loss."""
    starts = Starts(ended(KILLED, 0, 2, 3), ended(KILLED, 1, 2), ended(5, 0, 1), ended(0))
    assert Restarts(4, 3, is_elastic=True).run(starts) == 0
    assert starts.present == [[0, 1, 2, 3], [0, 2, 3], [2, 3], [2, 3]]


def test_fewer_start_where_the_mesh_does_not_fit_those_that_are_left(waits: list[float]) -> None:
    starts = Starts(ended(KILLED, 0, 1, 2), ended(2), ended(2), ended(0))
    assert Restarts(4, 1, is_elastic=True).run(starts) == 0
    assert starts.present == [[0, 1, 2, 3], [0, 1, 2], [0, 1], [0]]
    assert waits == [1]


def test_all_start_again_where_none_is_left() -> None:
    starts = Starts(ended(KILLED, 0), ended(KILLED), ended(0))
    assert Restarts(2, 2, is_elastic=True).run(starts) == 0
    assert starts.present == [[0, 1], [0], [0, 1]]
    starts = Starts(ended(KILLED, 0), ended(2), ended(0))
    assert Restarts(2, 1, is_elastic=True).run(starts) == 0
    assert starts.present == [[0, 1], [0], [0, 1]]


@pytest.mark.parametrize(("ends", "number_of_starts"), [
    ([ended(2)], 1),
    ([ended(130, is_asked=True)], 1),
    ([ended(KILLED, 0), ended(2), ended(2)], 3),
    ([ended(KILLED), ended(2)], 2),
    ([ended(KILLED, 0), ended(KILLED, 0), ended(1, 0)], 3),
])  # fmt: skip
def test_what_ends_for_good(ends: list[Ended], number_of_starts: int) -> None:
    starts = Starts(*ends)
    assert Restarts(2, 2, is_elastic=True).run(starts) == ends[-1].status
    assert len(starts.present) == number_of_starts
