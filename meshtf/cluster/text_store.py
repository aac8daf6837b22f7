"""The interface of a store of texts that all processes share, by key."""

from __future__ import annotations

from typing import Protocol


class TextStore(Protocol):
    """Texts by key, which all processes read and write. ConnectionError is raised if process 0, which keeps
    them, is unreachable.
    """

    def put(self, key: str, value: str) -> None:
        """Puts a text under a key. Raises ConnectionError also if the key has a text already."""
        ...

    def replace(self, key: str, value: str) -> None:
        """Replaces the text that this process has put under the key, if any. For a moment there is no text."""
        ...

    def get(self, key: str, timeout_seconds: float) -> str | None:
        """Waits for the text under a key. Returns None if no text is put in time."""
        ...
