"""The texts that processes tell one another, by key."""

from __future__ import annotations

from typing import Protocol


class TextStore(Protocol):
    """Texts by key, which all processes read and write. ConnectionError is raised if process 0, which keeps
    them, is unreachable.
    """

    def put(self, key: str, value: str) -> None:
        """Puts a text under a key, once. Raises ConnectionError also if it has been put before."""
        ...

    def replace(self, key: str, value: str) -> None:
        """Replaces the text that this process has put under the key, if it has. For a moment there is none."""
        ...

    def get(self, key: str, timeout_seconds: float) -> str | None:
        """Waits for the text under a key. Returns None if it does not come in time."""
        ...
