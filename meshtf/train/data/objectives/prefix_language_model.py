"""Prefix language modelling (Liu et al. 2018; Raffel et al. 2020)."""

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
class PrefixLanguageModel(WholeText):
    """An objective whose `targets` are the text. `targets_prefix` is 1 up to a random place. Later tokens count.

    The prefix may be empty, and leaves at least one token.
    """

    @property
    def sequences(self) -> Mapping[str, tuple[str, ...]]:
        return {"targets": ("targets", "targets_weights", "targets_prefix")}

    def check(self, sizes: Sequence[int], vocabulary: Vocabulary) -> None:
        """Accepts every size and vocabulary."""

    def example(self, parts: Sequence[np.ndarray], vocabulary: Vocabulary, uniforms: Uniforms) -> Example:
        (targets,) = parts
        prefix = (np.arange(len(targets)) < uniforms.draw_below(len(targets))).astype(np.int32)
        return {"targets": targets, "targets_weights": (1 - prefix).astype(np.float32), "targets_prefix": prefix}
