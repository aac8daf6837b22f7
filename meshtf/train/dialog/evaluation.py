"""Measures answers to questions whose right answers are known."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence

from meshtf.train.dialog.calculator import Calculator
from meshtf.train.dialog.dialog_model import DialogModel
from meshtf.train.dialog.questions import Question, drawn_question, library
from meshtf.train.dialog.responses import ratings
from meshtf.train.dialog.retrieval import Retrieval
from meshtf.train.dialog.roles import GROUNDED, INTERESTING, SAFE, SENSIBLE, SPECIFIC, USER, turn
from meshtf.train.dialog.tool_loop import answered
from meshtf.train.dialog.tools import Toolset

METRICS = (SENSIBLE, SPECIFIC, INTERESTING, SAFE, GROUNDED)

SAMPLED, RANKED, TOOLS = "sampled", "ranked", "with tools"
STAGES = (SAMPLED, RANKED, TOOLS)


@dataclasses.dataclass(frozen=True)
class StageScores:
    """The shares of answers that have each attribute.

    Attributes:
      stage: "sampled" has all candidates as they were drawn, "ranked" the chosen ones, "with tools" the final answers.
      shares: the share of each of `METRICS`. "GROUNDED" is the share of right answers.
      num_questions: how many questions were asked.
    """

    stage: str
    shares: Mapping[str, float]
    num_questions: int

    def as_json(self) -> dict[str, object]:
        return {"stage": self.stage, "questions": self.num_questions, **{k.lower(): v for k, v in self.shares.items()}}

    def __str__(self) -> str:
        shares = ", ".join(f"{name.lower()} {100 * share:.1f} %" for name, share in self.shares.items())
        return f"{self.stage}: {shares} of {self.num_questions:,} questions"


def held_out_questions(count: int, seed: int = 0) -> list[Question]:
    """Draws questions that no generated dialog of a training has."""
    draws = random.Random(f"evaluation {seed}")
    return [drawn_question(draws, held_out=True) for _ in range(count)]


def known_toolset() -> Toolset:
    """The tools that know all answers: a calculator, and retrieval over the library of facts."""
    return Toolset([Calculator(), Retrieval(library())])


def evaluated_stages(model: DialogModel, questions: Sequence[Question], toolset: Toolset) -> list[StageScores]:
    """Asks questions once, and scores the answers at every stage."""
    answers = answered(model, [turn(USER, question.text) for question in questions], toolset)
    texts = {
        SAMPLED: [[candidate.text for candidate in answer.candidates] for answer in answers],
        RANKED: [[answer.draft] for answer in answers],
        TOOLS: [[answer.text] for answer in answers],
    }
    return [StageScores(stage, shares(questions, texts[stage]), len(questions)) for stage in STAGES]


def shares(questions: Sequence[Question], texts: Sequence[Sequence[str]]) -> dict[str, float]:
    """The share of the texts that have each attribute, over all texts for each question."""
    rated = [ratings(question, text) for question, own in zip(questions, texts, strict=True) for text in own]
    return {name: sum(one[name] for one in rated) / len(rated) for name in METRICS}
