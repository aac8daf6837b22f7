"""What a source of text gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Protocol, runtime_checkable


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """A piece of text that is on one side of the split into training and held-out text.

    Attributes:
      name: where it is from, for messages.
      content: the text's bytes, in UTF-8 unless the source's data is broken.
    """

    name: str
    content: bytes


@runtime_checkable
class Source(Protocol):
    """Documents in a definite order."""

    def documents(self) -> Iterator[Document]:
        """Every document, in the same order each time.

        Raises:
          ConfigurationError: there are none, or they cannot be read.
        """
        ...
