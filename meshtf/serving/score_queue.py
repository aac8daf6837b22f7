"""Texts that wait for their scores."""

from __future__ import annotations

import concurrent.futures

from meshtf.serving.engine import EngineBusyError
from meshtf.serving.fair_queue import FairQueue

Score = concurrent.futures.Future[list[float | None]]
Scored = tuple[tuple[int, ...], Score]
"""The ids of a text, and the future of its score."""


class ScoreQueue:
    """A queue of texts. Clients take turns, and each client's texts keep their order.

    Args:
      length: the number of places, as in `FairQueue`.

    Examples:
      >>> queue = ScoreQueue(length=4)
      >>> first, second = queue.add("a", (1,)), queue.add("a", (2,))
      >>> first.cancel()
      True
      >>> [ids for ids, _ in queue.take(4)]
      [(2,)]
    """

    def __init__(self, length: int) -> None:
        self._waiting: FairQueue[Scored] = FairQueue(length)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, client: str, ids: tuple[int, ...]) -> Score:
        """Adds a text of a client, and returns the future of its score.

        Raises:
          EngineBusyError: if there is no room for it.
        """
        score: Score = concurrent.futures.Future()
        try:
            self._waiting.add(client, (ids, score))
        except EngineBusyError:
            self._waiting.taken_if(lambda each: each[1].cancelled())
            self._waiting.add(client, (ids, score))
        return score

    def take(self, most: int) -> list[Scored]:
        """Removes and returns the next texts. Cancelled ones are dropped."""
        taken: list[Scored] = []
        while len(self._waiting) > 0 and len(taken) < most:
            ids, score = self._waiting.pop()
            if score.set_running_or_notify_cancel():
                taken.append((ids, score))
        return taken

    def fail(self, error: Exception) -> None:
        """Removes all texts, and sets this error in the future of each."""
        for _, score in self.take(len(self._waiting)):
            score.set_exception(error)
