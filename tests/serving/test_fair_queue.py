"""Clients take turns, however many items one of them has."""

from __future__ import annotations

from meshtf.serving.fair_queue import FairQueue


def test_clients_take_turns_and_items_may_leave() -> None:
    queue: FairQueue[int] = FairQueue()
    for client, item in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5)]:
        queue.add(client, item)
    assert queue.taken_if(lambda item: item in (3, 5)) == [3, 5]
    assert (queue.first(), len(queue)) == (1, 3)
    assert [queue.pop() for _ in range(3)] == [1, 4, 2]
    assert queue.first() is None
