"""Clients take turns, however many items one of them has."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from meshtf.serving.engine import EngineBusyError, Finish, GenerationRequest
from meshtf.serving.engine_options import EngineOptions
from meshtf.serving.fair_queue import FairQueue
from meshtf.serving.generation import Generation
from meshtf.serving.row_choice import RowChoice
from meshtf.serving.scheduler import Scheduler


def test_clients_take_turns_and_items_may_leave() -> None:
    queue: FairQueue[int] = FairQueue(length=10)
    for client, item in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5)]:
        queue.add(client, item)
    assert queue.taken_if(lambda item: item in (3, 5)) == [3, 5]
    assert (queue.first(), len(queue)) == (1, 3)
    assert [queue.pop() for _ in range(3)] == [1, 4, 2]
    assert queue.first() is None


def test_a_condition_that_comes_to_hold_loses_no_item() -> None:
    """A request may be late between two looks at the clock."""
    queue: FairQueue[int] = FairQueue(length=10)
    queue.add("a", 1)
    clock = itertools.count()
    assert queue.taken_if(lambda _: next(clock) > 0) == []
    assert (queue.first(), len(queue)) == (1, 1)
    assert queue.taken_if(lambda _: next(clock) > 0) == [1]


def test_a_generation_that_becomes_late_is_not_lost(monkeypatch: pytest.MonkeyPatch, heard: type[Any]) -> None:
    """It waits to start over after a failed step, and its time ends while the scheduler looks."""
    asked = GenerationRequest((5,), max_new_tokens=1, deadline_seconds=1.0)
    one = Generation(1, asked, heard(), RowChoice.of(asked, 8), [0, 5], 2, submitted_at=0.0)
    scheduler, clock = Scheduler(EngineOptions(), 4), itertools.chain([0.5], itertools.repeat(1.5))
    scheduler.again.append(one)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    assert scheduler.ended_early() == []
    assert scheduler.ended_early() == [(one, Finish.TIMED_OUT)]
    assert not scheduler.has_work


def test_a_line_has_no_more_items_than_there_are_free_places() -> None:
    """One client fills half of the places, and clients that come later find fewer, but some."""
    queue: FairQueue[str] = FairQueue(length=16)
    counts = []
    for client in "abcde":
        for count in range(17):
            try:
                queue.add(client, client)
            except EngineBusyError:
                counts.append(count)
                break
    assert counts == [8, 4, 2, 1, 1]
    with pytest.raises(EngineBusyError, match="0 of its requests and 16 of others wait in 16 places"):
        queue.add("f", "f")
    assert "".join(queue.pop() for _ in range(16)) == "abcdeabcababaaaa"
