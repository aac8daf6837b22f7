"""Language modelling: each token is predicted from the tokens before it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import gin
import numpy as np

from meshtf.train.data.objectives._whole_text import WholeText
from meshtf.train.data.objectives.objective import Example
from meshtf.train.data.objectives.uniforms import Uniforms
from meshtf.train.data.vocabularies.vocabulary import Vocabulary


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class LanguageModel(WholeText):
    """An objective whose `targets` are the text. Every token of it counts."""

    @property
    def sequences(self) -> Mapping[str, tuple[str, ...]]:
        return {"targets": ("targets", "targets_weights")}

    def check(self, sizes: Sequence[int], vocabulary: Vocabulary) -> None:
        """Accepts every size and vocabulary."""

    def example(self, parts: Sequence[np.ndarray], vocabulary: Vocabulary, uniforms: Uniforms) -> Example:
        (targets,) = parts
        return {"targets": targets, "targets_weights": np.ones(len(targets), np.float32)}
