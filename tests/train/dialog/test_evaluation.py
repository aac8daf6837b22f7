from __future__ import annotations

from meshtf.train.dialog.evaluation import StageScores, held_out_questions, known_toolset, shares
from meshtf.train.dialog.questions import SUM, Question

TOTAL = Question(SUM, "17 plus 25", "42")


def test_shares_are_those_of_all_texts() -> None:
    texts = [["17 plus 25 is 42 .", "i am not sure . go away !"], ["17 plus 25 is 1 . numbers are fun .", "what"]]
    found = shares([TOTAL, TOTAL], texts)
    assert found == {"SENSIBLE": 0.75, "SPECIFIC": 0.5, "INTERESTING": 0.25, "SAFE": 0.75, "GROUNDED": 0.25}
    scores = StageScores("ranked", found, 2)
    assert scores.as_json()["sensible"] == 0.75
    assert str(scores).startswith("ranked: sensible 75.0 %, ")


def test_the_known_tools_answer_every_held_out_question() -> None:
    """By the first answer to the query that fine-tuning teaches."""
    toolset = known_toolset()
    for question in held_out_questions(100):
        assert toolset.answers(question.query)[0] == question.evidence
