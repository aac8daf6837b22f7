"""Scores are fair to clients, and texts that nobody waits for take no place."""

from __future__ import annotations

import pytest

from meshtf.serving.engine import EngineBusyError
from meshtf.serving.score_queue import ScoreQueue


def test_clients_take_turns_and_cancelled_texts_make_room() -> None:
    queue = ScoreQueue(length=4)
    first, _ = queue.add("a", (1,)), queue.add("a", (2,))
    with pytest.raises(EngineBusyError, match="2 of its requests and 0 of others wait in 4 places"):
        queue.add("a", (3,))
    first.cancel()
    for client, ids in (("a", (3,)), ("b", (4,))):
        queue.add(client, ids)
    assert [ids for ids, _ in queue.take(4)] == [(2,), (4,), (3,)]
