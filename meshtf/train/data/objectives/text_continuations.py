"""Continuations of given texts: only the continuations are learnt."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import gin
import numpy as np

from meshtf.field_checks import check_kinds, check_sizes
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.objectives.objective import Example, TruncationSide
from meshtf.train.data.objectives.uniforms import Uniforms
from meshtf.train.data.vocabularies.vocabulary import Vocabulary


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class TextContinuations:
    """An objective whose documents are a given text, a tab, and its continuation. Only the continuation is learnt.

    Both stand in `targets`, one after the other and without an end. They are one text: only the given text has the
    vocabulary's begin token, if there is one. `targets_weights` is 1 for the tokens of the continuation and 0 for the
    others. An example of fine-tuning to generate and to rate (Thoppilan et al. 2022):

        USER what is 17 plus 25 ?
        RESPONSE<tab> 17 plus 25 is 42 .

        USER what is 17 plus 25 ?
        RESPONSE 17 plus 25 is 42 .
        SENSIBLE<tab> 1

    The end of a response, such as a newline, is part of its text.

    Attributes:
      longest: the number of tokens of a continuation; a longer one loses its end. The given text has the rest of the
        row. If it is longer, it loses its beginning, and the begin token. The continuation depends most on its end.
    """

    longest: int = 32

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)
        check_sizes(self, "longest", error=ConfigurationError)

    @property
    def sequences(self) -> Mapping[str, tuple[str, ...]]:
        return {"targets": ("targets", "targets_weights")}

    @property
    def num_parts(self) -> int:
        return 2

    @property
    def keeps_length(self) -> bool:
        return False

    @property
    def truncation_sides(self) -> tuple[TruncationSide, ...]:
        return ("left", "right")

    def parts(self, document: str) -> tuple[str, ...]:
        parts = tuple(document.split("\t"))
        if len(parts) != 2 or not parts[1]:
            raise ValueError(
                "a document must be a given text, a tab and a non-empty continuation, but this one has "
                f"{len(parts) - 1} tabs: {document[:60]!r}"
            )
        return parts

    def lengths(self, part_lengths: Sequence[int]) -> tuple[int, ...]:
        return (sum(part_lengths),)

    def limits(self, sizes: Sequence[int]) -> tuple[int, ...]:
        (size,) = sizes
        return (size - self.longest, self.longest)

    def check(self, sizes: Sequence[int], vocabulary: Vocabulary) -> None:
        (size,) = sizes
        if not isinstance(self.longest, int) or not 1 <= self.longest < size:
            raise ConfigurationError(
                f"TextContinuations.longest must be from 1 to below TextTask.length, {size}, and is {self.longest!r}"
            )

    def example(self, parts: Sequence[np.ndarray], vocabulary: Vocabulary, uniforms: Uniforms) -> Example:
        weights = np.repeat(np.array([0, 1], np.float32), [len(part) for part in parts])
        return {"targets": np.concatenate(parts).astype(np.int32), "targets_weights": weights}
