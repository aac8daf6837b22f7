"""Texts that wait for their scores."""

from __future__ import annotations

import collections
import concurrent.futures

from meshtf.errors import counted
from meshtf.serving.engine import EngineBusyError

Score = concurrent.futures.Future[list[float]]
Scored = tuple[tuple[int, ...], Score]
"""The ids of a text, and its score, which is to come."""


class ScoreQueue:
    """Texts in the order in which they came.

    Args:
      length: the number of texts that may wait.

    Examples:
      >>> queue = ScoreQueue(length=4)
      >>> first, second = queue.add((1,)), queue.add((2,))
      >>> first.cancel()
      True
      >>> [ids for ids, _ in queue.take(4)]
      [(2,)]
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._waiting: collections.deque[Scored] = collections.deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, ids: tuple[int, ...]) -> Score:
        """Adds a text, and returns its score to come.

        Raises:
          EngineBusyError: if the queue is full.
        """
        if len(self._waiting) >= self._length:
            self._waiting = collections.deque(each for each in self._waiting if not each[1].cancelled())
        if len(self._waiting) >= self._length:
            raise EngineBusyError(f"the queue of scores has {counted(self._length, 'text')}, and is full")
        score: Score = concurrent.futures.Future()
        self._waiting.append((ids, score))
        return score

    def take(self, most: int) -> list[Scored]:
        """Takes the texts that come next, without those that nobody waits for any more."""
        taken: list[Scored] = []
        while self._waiting and len(taken) < most:
            ids, score = self._waiting.popleft()
            if score.set_running_or_notify_cancel():
                taken.append((ids, score))
        return taken

    def fail(self, error: Exception) -> None:
        """Takes all texts, and gives each this error in place of a score."""
        for _, score in self.take(len(self._waiting)):
            score.set_exception(error)
