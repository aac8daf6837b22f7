from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ByteVocabulary, SpanCorruption
from meshtf.train.data.objectives.uniforms import Uniforms

VOCABULARY = ByteVocabulary(extra_ids=100)
FIRST_SENTINEL = VOCABULARY.size - 1
AS_T5 = SpanCorruption()


def is_sentinel(token: int) -> bool:
    return token > FIRST_SENTINEL - VOCABULARY.extra_ids


def corrupted(text: list[int], index: int = 0, objective: SpanCorruption = AS_T5) -> tuple[list[int], list[int]]:
    example = objective.example([np.array(text, np.int32)], VOCABULARY, Uniforms(0, index))
    assert example["targets_weights"].tolist() == [1.0] * len(example["targets"])
    return example["inputs"].tolist(), example["targets"].tolist()


def spans_of(targets: list[int]) -> dict[int, list[int]]:
    """Each span by its sentinel."""
    spans: dict[int, list[int]] = {}
    for token in targets[:-1]:
        if is_sentinel(token):
            spans[token] = []
        else:
            spans[list(spans)[-1]].append(token)
    return spans


def restored(inputs: list[int], targets: list[int]) -> list[int]:
    spans = spans_of(targets)
    return [token for place in inputs[:-1] for token in (spans[place] if is_sentinel(place) else [place])]


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.integers(0, 150), max_size=120),
    st.integers(0, 2**40),
    st.builds(SpanCorruption, st.floats(0.01, 0.99), st.floats(1, 9)),
)
def test_inputs_and_targets_give_the_text_back(text: list[int], index: int, objective: SpanCorruption) -> None:
    inputs, targets = corrupted(text, index, objective)
    assert inputs[-1] == targets[-1] == VOCABULARY.end_id
    assert restored(inputs, targets) == text
    assert (len(inputs), len(targets)) == objective.lengths([len(text)])
    sentinels = list(spans_of(targets))
    assert sentinels == [FIRST_SENTINEL - k for k in range(len(sentinels))]
    assert [token for token in inputs if is_sentinel(token)] == sentinels
    assert all(spans_of(targets).values())


def test_lengths_are_those_of_t5() -> None:
    """568 tokens of text for inputs of 512, whose targets have 114."""
    objective = SpanCorruption()
    assert objective.limits([512, 114]) == (568,)
    assert objective.lengths([568]) == (512, 114)
    assert objective.limits([512, 113]) < (568,)


def test_share_and_length_of_spans() -> None:
    text = list(range(3, 103)) * 5
    lengths = np.array([len(span) for index in range(300) for span in spans_of(corrupted(text, index)[1]).values()])
    assert lengths.sum() == 300 * 75  # 15 % of 500
    assert len(lengths) == 300 * 25  # a mean of 3
    # Of the ways to write 75 as a sum of 25, the share whose first term is 1 is (73 over 23) / (74 over 24).
    assert (lengths == 1).mean() == pytest.approx(24 / 74, abs=0.03)


def test_every_place_is_as_likely_to_be_taken_out() -> None:
    """But for the edges: a text begins with what stays, and ends with a span."""
    text = list(range(3, 53))
    kept = np.zeros(60)
    for index in range(2000):
        kept[[token for token in corrupted(text, index)[0] if 3 <= token < 53]] += 1
    taken = 1 - kept[3:53] / 2000
    assert taken[0] == 0
    assert taken[-1] == 1
    assert taken[15:35].mean() == pytest.approx(0.15, abs=0.03)


def test_the_index_decides() -> None:
    text = list(range(3, 103))
    assert corrupted(text, 5) == corrupted(text, 5)
    assert corrupted(text, 5) != corrupted(text, 6)


def test_too_few_sentinels() -> None:
    with pytest.raises(ConfigurationError) as caught:
        SpanCorruption().check([512, 114], ByteVocabulary(extra_ids=27))
    assert "needs 28 sentinels for inputs of length 512, and the vocabulary has 27" in str(caught.value)
    assert "ByteVocabulary.extra_ids = 28" in str(caught.value)
    SpanCorruption().check([512, 114], ByteVocabulary(extra_ids=28))


def test_lengths_that_fit_nothing() -> None:
    with pytest.raises(ConfigurationError, match=r"fits no text in inputs of length 1 with targets of length 114"):
        SpanCorruption().check([1, 114], VOCABULARY)


def test_values_that_cannot_be() -> None:
    with pytest.raises(ConfigurationError, match=r"noise_density must be in \(0, 1\), and is 15"):
        SpanCorruption(noise_density=15)
    with pytest.raises(ConfigurationError, match=r"mean_span_length must be 1 or more, and is 0.5"):
        SpanCorruption(mean_span_length=0.5)
