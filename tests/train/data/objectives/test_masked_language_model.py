from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ByteVocabulary, MaskedLanguageModel
from meshtf.train.data.objectives.objective import Example
from meshtf.train.data.objectives.uniforms import Uniforms

VOCABULARY = ByteVocabulary(extra_ids=1)
MASK = VOCABULARY.size - 1


def masked(text: np.ndarray, index: int = 0) -> Example:
    return MaskedLanguageModel().example([text.astype(np.int32)], VOCABULARY, Uniforms(0, index))


def test_rates_are_those_of_bert() -> None:
    text = np.tile(np.arange(3, 203), 5)
    examples = [masked(text, index) for index in range(100)]
    chosen = np.concatenate([example["targets_weights"] for example in examples]) == 1
    inputs = np.concatenate([example["inputs"] for example in examples])
    targets = np.concatenate([example["targets"] for example in examples])
    count = chosen.sum()
    assert count == 100 * 150  # 15 % of 1,000, exactly
    np.testing.assert_array_equal(inputs[~chosen], targets[~chosen])
    is_mask, is_same = inputs[chosen] == MASK, inputs[chosen] == targets[chosen]
    deviation = 5 / np.sqrt(count)
    assert is_mask.mean() == pytest.approx(0.8, abs=0.4 * deviation)
    # A random token is the same again once in 256.
    assert is_same.mean() == pytest.approx(0.1 + 0.1 / 256, abs=0.3 * deviation)
    others = inputs[chosen][~is_mask & ~is_same]
    assert len(np.unique(others)) > 250
    assert others.min() >= VOCABULARY.text_ids.start
    assert others.max() < VOCABULARY.text_ids.stop


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from([1, 5, 6, 7]), max_size=30), st.integers(0, 2**40))
def test_targets_are_the_text_and_ends_are_not_chosen(text: list[int], index: int) -> None:
    example = masked(np.array(text), index)
    assert example["targets"].tolist() == text
    chosen = example["targets_weights"] == 1
    candidates = sum(token != VOCABULARY.end_id for token in text)
    assert chosen.sum() == (max(1, round(0.15 * candidates)) if candidates else 0)
    assert VOCABULARY.end_id not in example["targets"][chosen]


def test_a_vocabulary_without_a_mask() -> None:
    with pytest.raises(ConfigurationError, match=r"ByteVocabulary.extra_ids = 1"):
        MaskedLanguageModel().check([8], ByteVocabulary())


def test_a_share_that_cannot_be() -> None:
    with pytest.raises(ConfigurationError, match=r"masked_share must be in \(0, 1\), and is 0"):
        MaskedLanguageModel(masked_share=0)
