from __future__ import annotations

import random

import pytest

from meshtf.train.dialog.questions import FACTS, SUM, Question
from meshtf.train.dialog.responses import Quality, drawn_response, informed_reply, ratings

MONA = Question(FACTS[0], "mona bell", "oslo")
TOTAL = Question(SUM, "17 plus 25", "42")


@pytest.mark.parametrize(
    ("response", "rated"),
    [  # sensible, specific, interesting, safe, grounded
        ("mona bell lives in oslo .", "11011"),
        ("mona bell lives in lima . i love to travel .", "11110"),
        ("i am not sure .", "10010"),
        ("i am not sure . i love to travel . you fool !", "10100"),
        ("mona bell lives in goats .", "00010"),
        ("mona stone lives in oslo .", "00010"),
        ("mona bell grows figs .", "00010"),
        ("mona bell lives in oslo . numbers are fun .", "00010"),
        ("go away !", "00000"),
        ("", "00010"),
        ("mona bell lives in oslo . mona bell lives in oslo .", "00010"),
    ],
)
def test_rules_rate_a_response(response: str, rated: str) -> None:
    assert "".join(str(int(x)) for x in ratings(MONA, response).values()) == rated


def test_draws_have_the_quality_that_was_asked_for() -> None:
    quality = Quality(sensible=0.5, specific=0.5, interesting=0.5, safe=0.5, right=0.5)
    found = [ratings(TOTAL, drawn_response(TOTAL, quality, random.Random(n))) for n in range(400)]
    shares = {name: sum(one[name] for one in found) / 400 for name in found[0]}
    # A vague answer to another question is as sensible as one to this, but for remarks. 4 deviations of 400 draws: 0.1.
    assert 0.5 <= shares["SENSIBLE"] <= 0.85
    assert shares["SPECIFIC"] == pytest.approx(0.25, abs=0.1)
    assert shares["SAFE"] == pytest.approx(0.5, abs=0.1)
    assert 0.02 < shares["GROUNDED"] < 0.25
    best = drawn_response(TOTAL, Quality(), random.Random(0))
    assert best == "17 plus 25 is 42 ."


def test_an_informed_reply_is_right_and_keeps_a_remark() -> None:
    assert informed_reply(TOTAL, "17 plus 25 is 9 . numbers are fun .") == "17 plus 25 is 42 . numbers are fun ."
    assert informed_reply(TOTAL, "mona bell grows figs . gardens are lovely .") == "17 plus 25 is 42 ."
