from __future__ import annotations

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ByteVocabulary, WordVocabulary
from meshtf.train.dialog import dialog_words
from meshtf.train.dialog.dialog_model import rating_form
from meshtf.train.dialog.roles import ATTRIBUTES


def test_a_rating_is_asked_for_by_a_newline_and_a_word() -> None:
    vocabulary = WordVocabulary(dialog_words())
    form = rating_form(vocabulary, ATTRIBUTES)
    assert [vocabulary.decode(ids) for ids in form.asked] == [f"\n{name}" for name in ATTRIBUTES]
    assert form.num_asked == 2
    assert [vocabulary.decode([token]) for token in (form.yes, form.no)] == [" 1", " 0"]


def test_no_begin_token_stands_inside_of_a_dialog() -> None:
    class Beginning(WordVocabulary):
        begin_id = 7

        def encode(self, text: str) -> list[int]:
            return [7, *super().encode(text)]

    words = dialog_words()
    assert rating_form(Beginning(words), ATTRIBUTES) == rating_form(WordVocabulary(words), ATTRIBUTES)


def test_a_vocabulary_without_words_for_ratings() -> None:
    with pytest.raises(ConfigurationError, match=r"'INTERESTING' must be one token to ask for a rating"):
        rating_form(ByteVocabulary(), ATTRIBUTES)
    with pytest.raises(ConfigurationError, match=r"' 1' must be one token to rate a text, .* as the ids \[34, 51\]"):
        rating_form(WordVocabulary(ATTRIBUTES), ATTRIBUTES)
