"""The task that a model learns from text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from meshtf.train.data.objectives.uniforms import Uniforms
from meshtf.train.data.vocabularies.vocabulary import Vocabulary

Example: TypeAlias = "dict[str, np.ndarray]"
"""Features of one example, each [length of its sequence], by name: int32, or float32 for weights."""

TruncationSide: TypeAlias = Literal["left", "right"]
"""Where a text that is too long loses tokens: "left" is its beginning."""


@runtime_checkable
class Objective(Protocol):
    """Makes examples from text, or from several texts that belong together: its parts."""

    @property
    def sequences(self) -> Mapping[str, tuple[str, ...]]:
        """The sequences of an example, each with the features of its length: itself and those that belong to it."""
        ...

    @property
    def num_parts(self) -> int:
        """The number of texts in a document."""
        ...

    @property
    def keeps_length(self) -> bool:
        """Whether each sequence is as long as the text and keeps its end. If not, the objective adds ends itself."""
        ...

    @property
    def truncation_sides(self) -> tuple[TruncationSide, ...]:
        """The side of each part where it loses tokens if it is too long.

        A document that has only one part loses none. It is cut into several rows.
        """
        ...

    def parts(self, document: str) -> tuple[str, ...]:
        """Returns the texts in a document.

        Raises:
          ValueError: if the document does not have the form that the objective needs. The message says which.
        """
        ...

    def lengths(self, part_lengths: Sequence[int]) -> tuple[int, ...]:
        """Returns the length of each sequence, for parts of these lengths."""
        ...

    def limits(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Returns the most tokens of each part whose example fits in sequences of these sizes."""
        ...

    def check(self, sizes: Sequence[int], vocabulary: Vocabulary) -> None:
        """Checks the sizes and the vocabulary.

        Raises:
          ConfigurationError: if the sequences are too short, or the vocabulary lacks ids that the objective needs.
        """
        ...

    def example(self, parts: Sequence[np.ndarray], vocabulary: Vocabulary, uniforms: Uniforms) -> Example:
        """Returns features for the ids of each part, [its length]. `uniforms` decides everything random."""
        ...
