"""What processes tell one another: texts by key."""

from __future__ import annotations

from typing import Protocol


class TextStore(Protocol):
    """Texts by key, which all processes read and write. ConnectionError where process 0, which keeps them, is not
    reached."""

    def put(self, key: str, value: str) -> None:
        """Once for each key; ConnectionError where it has been put before, too."""
        ...

    def replace(self, key: str, value: str) -> None:
        """In place of what this process has put under the key, if it has. For a moment there is nothing."""
        ...

    def get(self, key: str, timeout_seconds: float) -> str | None:
        """The value, waited for; None where it does not come in time."""
        ...
