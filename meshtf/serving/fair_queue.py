"""A queue that serves its clients in turn."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Generic, TypeVar

from meshtf.errors import counted
from meshtf.serving.engine import EngineBusyError

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue with one line of items for each client, in order of arrival. Clients take turns.

    A client's line grows only while it is shorter than the number of free places. So one client alone can fill half of
    the queue, and a later client still finds room.

    Args:
      length: the number of places.

    Examples:
      >>> queue = FairQueue(length=8)
      >>> for client, item in [("a", 1), ("a", 2), ("b", 3)]:
      ...     queue.add(client, item)
      >>> [queue.pop() for _ in range(3)]
      [1, 3, 2]
    """

    def __init__(self, length: int) -> None:
        self._length = length
        self._lines: collections.OrderedDict[str, collections.deque[T]] = collections.OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def check_room(self, client: str) -> None:
        """Raises EngineBusyError if the line of this client may not grow."""
        own, all_lines = len(self._lines.get(client, ())), len(self)
        if own >= self._length - all_lines:
            raise EngineBusyError(
                f"the queue has no room for another request of this client: {own} of its requests and "
                f"{all_lines - own} of others wait in {counted(self._length, 'place')}"
            )

    def add(self, client: str, item: T) -> None:
        """Puts an item at the end of its client's line.

        Raises:
          EngineBusyError: if the line may not grow.
        """
        self.check_room(client)
        self._lines.setdefault(client, collections.deque()).append(item)

    def first(self) -> T | None:
        """Returns the next item without removing it."""
        return next(iter(self._lines.values()))[0] if self._lines else None

    def pop(self) -> T:
        """Removes and returns the next item. Its client then waits behind all others."""
        client, line = next(iter(self._lines.items()))
        item = line.popleft()
        del self._lines[client]
        if line:
            self._lines[client] = line
        return item

    def taken_if(self, condition: Callable[[T], bool]) -> list[T]:
        """Removes and returns all items that satisfy the condition.

        Each item is asked once: a condition on the time may hold a moment later.
        """
        taken: list[T] = []
        for client, line in list(self._lines.items()):
            kept = collections.deque[T]()
            for item in line:
                (taken if condition(item) else kept).append(item)
            if kept:
                self._lines[client] = kept
            else:
                del self._lines[client]
        return taken
