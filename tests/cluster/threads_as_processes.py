"""Processes that agree through a key-value store, as threads over one dictionary."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any

from meshtf.cluster.cluster import Cluster
from meshtf.errors import ClusterError


class Texts:
    """A store of this process."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._changed = threading.Condition()

    def put(self, key: str, value: str) -> None:
        with self._changed:
            if key in self._texts:
                raise ConnectionError(f"{key} is written twice")
            self._texts[key] = value
            self._changed.notify_all()

    def replace(self, key: str, value: str) -> None:
        with self._changed:
            self._texts.pop(key, None)
        self.put(key, value)

    def get(self, key: str, timeout_seconds: float) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: key in self._texts, timeout_seconds)
            return self._texts.get(key)


def in_each(
    number: int, function: Callable[[Cluster], Any], present: int | None = None, texts: Texts | None = None
) -> list[Any]:
    """What `function` returns or raises in each of so many processes, of which the first `present` are there."""
    texts = texts or Texts()
    addresses = tuple(f"host{i}:4000" for i in range(number))

    def call(index: int) -> Any:
        try:
            return function(Cluster(index, addresses, 2.0, texts, None))
        except ClusterError as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(number) as pool:
        return list(pool.map(call, range(number if present is None else present)))
