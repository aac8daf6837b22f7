"""Masked language modelling, as BERT is trained (Devlin et al. 2019)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import gin
import numpy as np

from meshtf.field_checks import check_kinds
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.objectives._whole_text import WholeText
from meshtf.train.data.objectives.objective import Example
from meshtf.train.data.objectives.uniforms import Uniforms
from meshtf.train.data.vocabularies.vocabulary import Vocabulary

NO_MASK = """\
MaskedLanguageModel replaces tokens with the vocabulary's mask or its first sentinel, but the vocabulary has neither.
Give it a sentinel: {name}.extra_ids = 1"""

SHARE_MASKED, SHARE_RANDOM = 0.8, 0.1


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class MaskedLanguageModel(WholeText):
    """An objective with `targets` and `inputs`. The loss counts the chosen tokens, which are changed in the inputs.

    80 % of the chosen tokens become the mask (the vocabulary's own, or the first sentinel), 10 % a random token, and 10
    % stay. Beginnings and ends are not chosen.

    Attributes:
      masked_share: the share of the text's tokens that are chosen, rounded to a whole number, and at least one.

    Raises:
      ConfigurationError: if the share is not between 0 and 1.
    """

    masked_share: float = 0.15

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)
        if not 0 < self.masked_share < 1:
            raise ConfigurationError(f"MaskedLanguageModel.masked_share must be in (0, 1), and is {self.masked_share}")

    @property
    def sequences(self) -> Mapping[str, tuple[str, ...]]:
        return {"inputs": ("inputs", "targets", "targets_weights")}

    def check(self, sizes: Sequence[int], vocabulary: Vocabulary) -> None:
        if vocabulary.mask_id is None:
            raise ConfigurationError(NO_MASK.format(name=type(vocabulary).__name__))

    def example(self, parts: Sequence[np.ndarray], vocabulary: Vocabulary, uniforms: Uniforms) -> Example:
        (targets,) = parts
        assert vocabulary.mask_id is not None  # `check` has made sure of it
        chosen = self._chosen(targets, vocabulary, uniforms)
        text_ids = vocabulary.text_ids
        random_ids = text_ids.start + (uniforms.draw(len(chosen)) * len(text_ids)).astype(np.int32)
        fate = uniforms.draw(len(chosen))
        inputs = targets.copy()
        kept_or_random = np.where(fate < SHARE_MASKED + SHARE_RANDOM, random_ids, targets[chosen])
        inputs[chosen] = np.where(fate < SHARE_MASKED, vocabulary.mask_id, kept_or_random)
        weights = np.zeros(len(targets), np.float32)
        weights[chosen] = 1.0
        return {"inputs": inputs, "targets": targets, "targets_weights": weights}

    def _chosen(self, tokens: np.ndarray, vocabulary: Vocabulary, uniforms: Uniforms) -> np.ndarray:
        """Returns the places of the chosen tokens in the text, [chosen] int64, ascending."""
        others = [vocabulary.end_id, vocabulary.padding_id]
        if vocabulary.begin_id is not None:
            others.append(vocabulary.begin_id)
        candidates = np.flatnonzero(~np.isin(tokens, others))
        count = min(max(round(len(candidates) * self.masked_share), 1), len(candidates))
        return candidates[uniforms.choose(count, len(candidates))]
