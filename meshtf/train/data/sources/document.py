"""The documents of a source of text."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """A piece of text that belongs as a whole to the training text or to the held-out text.

    Attributes:
      name: where it is from, for messages.
      content: the text's bytes, in UTF-8 unless the source's data is broken. For tokens, bytes that distinguish them.
      ids: if the source has tokens instead of text, the ids of each text in the document, [tokens] int64.
    """

    name: str
    content: bytes
    ids: tuple[np.ndarray, ...] | None = dataclasses.field(default=None, compare=False)


def document_of_ids(name: str, parts: Sequence[np.ndarray]) -> Document:
    """Returns a document of tokens, from the ids of each text in it."""
    whole = np.concatenate([piece for part in parts for piece in ([len(part)], part)])
    return Document(name, whole.astype("<i8").tobytes(), tuple(parts))


@runtime_checkable
class Source(Protocol):
    """Documents in a definite order."""

    def documents(self) -> Iterator[Document]:
        """Yields every document, in the same order each time.

        Raises:
          ConfigurationError: if there are none, or they cannot be read.
        """
        ...
