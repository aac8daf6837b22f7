from __future__ import annotations

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import NumberWords
from meshtf.train.data.sources.number_words import english, french

WORDS = {
    0: ("zero", "zéro"),
    21: ("twenty-one", "vingt et un"),
    71: ("seventy-one", "soixante et onze"),
    80: ("eighty", "quatre-vingts"),
    81: ("eighty-one", "quatre-vingt-un"),
    91: ("ninety-one", "quatre-vingt-onze"),
    100: ("one hundred", "cent"),
    200: ("two hundred", "deux cents"),
    280: ("two hundred and eighty", "deux cent quatre-vingts"),
    1205: ("one thousand two hundred and five", "mille deux cent cinq"),
    80_000: ("eighty thousand", "quatre-vingt mille"),
    200_000: ("two hundred thousand", "deux cent mille"),
}


@pytest.mark.parametrize("number", WORDS)
def test_numbers_are_named_as_grammars_have_it(number: int) -> None:
    assert (english(number), french(number)) == WORDS[number]


def test_each_number_is_one_pair() -> None:
    pairs = [document.content.decode().split("\t") for document in NumberWords(2000).documents()]
    assert len({english for english, _ in pairs}) == len({french for _, french in pairs}) == 2000
    assert max(len(text.encode()) for pair in pairs for text in pair) < 64
    assert str(NumberWords(2000)) == "2,000 numbers in English and French words"


@pytest.mark.parametrize("count", [0, 1_000_001, 1.5])
def test_a_count_is_checked(count: int) -> None:
    with pytest.raises(ConfigurationError, match=r"NumberWords.count must be from 1 to 1,000,000"):
        NumberWords(count)
