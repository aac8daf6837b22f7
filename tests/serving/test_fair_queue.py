"""Clients take turns, however many items one of them has."""

from __future__ import annotations

import pytest

from meshtf.serving.engine import EngineBusyError
from meshtf.serving.fair_queue import FairQueue


def test_clients_take_turns_and_items_may_leave() -> None:
    queue: FairQueue[int] = FairQueue(length=10)
    for client, item in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5)]:
        queue.add(client, item)
    assert queue.taken_if(lambda item: item in (3, 5)) == [3, 5]
    assert (queue.first(), len(queue)) == (1, 3)
    assert [queue.pop() for _ in range(3)] == [1, 4, 2]
    assert queue.first() is None


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
