from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import WordVocabulary

WORDS = WordVocabulary([" to", " tokyo", "to", "é"])


def test_the_longest_word_is_taken_and_bytes_for_the_rest() -> None:
    assert WORDS.encode("to tokyo to x") == [260, 259, 258, 2 + ord(" "), 2 + ord("x")]
    assert WORDS.encode("é") == [261]
    assert WORDS.size == 262


@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    ids = WORDS.encode(text)
    assert WORDS.decode(ids) == text
    assert WORDS.num_bytes(ids) == len(text.encode())
    assert WORDS.decode([0, *ids, 1, 262, -1]) == text


def test_other_words_have_another_fingerprint() -> None:
    assert WORDS.fingerprint != WordVocabulary([" to", " tokyo", "to", "e"]).fingerprint
    assert WordVocabulary([]).encode("a") == [2 + ord("a")]


@pytest.mark.parametrize("words", [["a", "a"], ["a", ""], "words"])
def test_words_that_are_none(words: object) -> None:
    with pytest.raises(ConfigurationError, match=r"WordVocabulary.words must be non-empty texts, all different"):
        WordVocabulary(words)  # type: ignore[arg-type]
