from __future__ import annotations

import math
from pathlib import Path

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.dialog.retrieval import Retrieval

PASSAGES = ["a cat sat", "a dog sat down", "the cat and the cat"]


def test_scores_are_those_of_the_formula() -> None:
    """Written out for "cat": in two of three passages, once in three words and twice in five; four on average."""
    rarity = math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))
    expected = {
        0: rarity * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 3 / 4)),
        2: rarity * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 5 / 4)),
    }
    assert Retrieval(PASSAGES).scores("Cat!") == pytest.approx(expected, rel=1e-12)


def test_the_best_passages_come_first_and_strangers_never() -> None:
    assert Retrieval(PASSAGES, num_answers=5).answers("cat sat") == [
        "a cat sat",
        "the cat and the cat",
        "a dog sat down",
    ]
    assert Retrieval(PASSAGES).answers("zebra") == []
    assert Retrieval([]).answers("cat") == []
    assert Retrieval(["same", "same too", "same"], num_answers=2).answers("same") == ["same", "same"]


def test_passages_of_files(tmp_path: Path) -> None:
    path = tmp_path / "facts.txt"
    path.write_text("vera keeps bees .\n\nomar keeps goats .\n")
    assert Retrieval.of_files([path]).passages == ["vera keeps bees .", "omar keeps goats ."]
    with pytest.raises(ConfigurationError, match=r"missing.txt cannot be read"):
        Retrieval.of_files([tmp_path / "missing.txt"])


def test_impossible_numbers() -> None:
    with pytest.raises(ConfigurationError, match=r"b from 0 to 1; they are 1, 1.2 and 2"):
        Retrieval([], b=2)
