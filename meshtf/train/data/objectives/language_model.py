"""Language modelling: each token is predicted from the tokens before it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import gin
import numpy as np

from meshtf.train.data.objectives.objective import Example
from meshtf.train.data.objectives.uniforms import Uniforms
from meshtf.train.data.vocabularies.vocabulary import Vocabulary


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """An objective whose `targets` are the text. Every token of it counts."""

    @property
    def sequences(self) -> Mapping[str, tuple[str, ...]]:
        return {"targets": ("targets", "targets_weights")}

    @property
    def num_parts(self) -> int:
        return 1

    @property
    def keeps_length(self) -> bool:
        return True

    def parts(self, document: str) -> tuple[str, ...]:
        return (document,)

    def lengths(self, part_lengths: Sequence[int]) -> tuple[int, ...]:
        return tuple(part_lengths)

    def limits(self, sizes: Sequence[int]) -> tuple[int, ...]:
        return tuple(sizes)

    def check(self, sizes: Sequence[int], vocabulary: Vocabulary) -> None:
        """Accepts every size and vocabulary."""

    def example(self, parts: Sequence[np.ndarray], vocabulary: Vocabulary, uniforms: Uniforms) -> Example:
        (targets,) = parts
        return {"targets": targets, "targets_weights": np.ones(len(targets), np.float32)}
