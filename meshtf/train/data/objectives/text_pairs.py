"""Pairs of texts: the second is predicted from the first."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import gin
import numpy as np

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.objectives.objective import Example, TruncationSide
from meshtf.train.data.objectives.uniforms import Uniforms
from meshtf.train.data.vocabularies.vocabulary import Vocabulary


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class TextPairs:
    """An objective whose documents are `inputs`, a tab and `targets`, as in a tab-separated file. Both get an end.

    A sequence that is too long for its size is cut, and keeps its end.
    """

    @property
    def sequences(self) -> Mapping[str, tuple[str, ...]]:
        return {"inputs": ("inputs",), "targets": ("targets", "targets_weights")}

    @property
    def num_parts(self) -> int:
        return 2

    @property
    def keeps_length(self) -> bool:
        return False

    @property
    def truncation_sides(self) -> tuple[TruncationSide, ...]:
        return ("right", "right")

    def parts(self, document: str) -> tuple[str, ...]:
        parts = tuple(document.split("\t"))
        if len(parts) != 2:
            raise ValueError(
                f"a pair must be two texts with a tab between them, but this document has {len(parts) - 1} tabs: "
                f"{document[:60]!r}"
            )
        return parts

    def lengths(self, part_lengths: Sequence[int]) -> tuple[int, ...]:
        return tuple(length + 1 for length in part_lengths)

    def limits(self, sizes: Sequence[int]) -> tuple[int, ...]:
        return tuple(size - 1 for size in sizes)

    def check(self, sizes: Sequence[int], vocabulary: Vocabulary) -> None:
        if min(sizes) < 2:
            raise ConfigurationError(
                f"TextPairs needs a TextTask.length of 2 or more, for a token and the end: {sizes}"
            )

    def example(self, parts: Sequence[np.ndarray], vocabulary: Vocabulary, uniforms: Uniforms) -> Example:
        inputs, targets = (np.append(part, np.int32(vocabulary.end_id)) for part in parts)
        return {"inputs": inputs, "targets": targets, "targets_weights": np.ones(len(targets), np.float32)}
