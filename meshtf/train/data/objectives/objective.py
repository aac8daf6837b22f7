"""What a model is asked to do with text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from meshtf.train.data.objectives.uniforms import Uniforms
from meshtf.train.data.vocabularies.vocabulary import Vocabulary

Example: TypeAlias = "dict[str, np.ndarray]"
"""Features of one example, each [length of its sequence], by name: int32, or float32 for weights."""


@runtime_checkable
class Objective(Protocol):
    """Makes examples of text, or of several texts that belong together: its parts."""

    @property
    def sequences(self) -> Mapping[str, tuple[str, ...]]:
        """The sequences of an example, and the features that are as long as each: itself and those that go with it."""
        ...

    @property
    def num_parts(self) -> int:
        """How many texts a document holds."""
        ...

    @property
    def keeps_length(self) -> bool:
        """Whether each sequence is as long as the text, whose end it keeps; else the objective adds ends itself."""
        ...

    def parts(self, document: str) -> tuple[str, ...]:
        """The texts that a document holds.

        Raises:
          ValueError: the document is not of the form that the objective needs; the message says which.
        """
        ...

    def lengths(self, part_lengths: Sequence[int]) -> tuple[int, ...]:
        """How long each sequence becomes."""
        ...

    def limits(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """The most tokens of each part whose example fits in sequences of these sizes."""
        ...

    def check(self, sizes: Sequence[int], vocabulary: Vocabulary) -> None:
        """
        Raises:
          ConfigurationError: the sequences are too short, or the vocabulary lacks ids that the objective needs.
        """
        ...

    def example(self, parts: Sequence[np.ndarray], vocabulary: Vocabulary, uniforms: Uniforms) -> Example:
        """Ids of each part, [its length] -> features; `uniforms` decides what is random."""
        ...
