from __future__ import annotations

import pytest

from meshtf.train.configuration import ConfigurationError
from meshtf.train.dialog.ranking import Candidate, SampleAndRank
from meshtf.train.dialog.roles import ATTRIBUTES


def candidate(text: str, *ratings: float, log_likelihood: float = -1.0) -> Candidate:
    return Candidate(text, log_likelihood, dict(zip(ATTRIBUTES, ratings, strict=True)))


def test_sensible_counts_three_times() -> None:
    """Scores 3 * sensible + specific + interesting: 2.4, 2.0 and 2.7."""
    given = [candidate("a", 0.8, 0, 0, 1), candidate("b", 0, 1, 1, 1), candidate("c", 0.9, 0, 0, 0.8)]
    assert [SampleAndRank().score(one) for one in given] == pytest.approx([2.4, 2.0, 2.7])
    assert [one.text for one in SampleAndRank().ranked(given)] == ["c", "a", "b"]
    assert SampleAndRank(sensible=0).ranked(given)[0].text == "b"


def test_what_may_be_unsafe_is_dropped_whatever_its_score() -> None:
    given = [candidate("a", 1, 1, 1, 0.79), candidate("b", 0, 0, 0, 0.8)]
    assert [one.text for one in SampleAndRank().ranked(given)] == ["b"]
    assert SampleAndRank(least_safe=0.9).ranked(given) == []


def test_equal_scores_are_ordered_by_likelihood() -> None:
    given = [candidate("a", 1, 0, 0, 1, log_likelihood=-3.0), candidate("b", 1, 0, 0, 1, log_likelihood=-2.0)]
    assert [one.text for one in SampleAndRank().ranked(given)] == ["b", "a"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_candidates": 0}, "num_candidates must be an integer, 1 or more, and is 0"),
        ({"temperature": 0.0}, "temperature must be a number above 0, and is 0.0"),
        ({"least_safe": 1.5}, "least_safe must be from 0 to 1, and is 1.5"),
        ({"max_tool_turns": -1}, "max_tool_turns must be an integer, 0 or more, and is -1"),
        ({"sensible": float("nan")}, "sensible must be a number, and is nan"),
    ],
)
def test_impossible_values(options: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"SampleAndRank.{message}"):
        SampleAndRank(**options)  # type: ignore[arg-type]
