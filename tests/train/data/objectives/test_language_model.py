"""Language models with and without a prefix."""

from __future__ import annotations

import collections

import numpy as np

from meshtf.train.data import ByteVocabulary, LanguageModel, PrefixLanguageModel
from meshtf.train.data.objectives.uniforms import Uniforms

TEXT = np.array([5, 6, 0, 7, 1], np.int32)


def test_every_token_counts_in_a_language_model() -> None:
    example = LanguageModel().example([TEXT], ByteVocabulary(), Uniforms(0, 0))
    assert example["targets"].tolist() == TEXT.tolist()
    assert example["targets_weights"].tolist() == [1.0] * 5


def test_tokens_after_the_prefix_count() -> None:
    sizes = collections.Counter()
    for index in range(2000):
        example = PrefixLanguageModel().example([TEXT], ByteVocabulary(), Uniforms(0, index))
        size = int(example["targets_prefix"].sum())
        assert example["targets"].tolist() == TEXT.tolist()
        assert example["targets_prefix"].tolist() == [1] * size + [0] * (5 - size)
        assert example["targets_weights"].tolist() == [0.0] * size + [1.0] * (5 - size)
        sizes[size] += 1
    assert sorted(sizes) == [0, 1, 2, 3, 4]
    assert max(abs(count - 400) for count in sizes.values()) < 5 * np.sqrt(400 * 0.8)
