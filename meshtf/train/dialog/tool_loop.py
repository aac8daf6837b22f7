"""Answers in a dialog: a response is drawn and ranked, and tools may inform a better one."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from meshtf.train.dialog.dialog_model import DialogModel
from meshtf.train.dialog.ranking import Candidate
from meshtf.train.dialog.roles import RESPONSE, TO, TOOL, TOOLSET, USER, turn
from meshtf.train.dialog.tools import Toolset

NOTHING_SAFE = "i would rather not answer that ."
"""The response if no candidate is safe enough."""

NOTHING_FOUND = "nothing found"
"""The tools' turn if none has an answer."""


@dataclasses.dataclass(frozen=True)
class ToolTurn:
    """A query to the tools, and the first of their answers."""

    query: str
    answer: str


@dataclasses.dataclass(frozen=True)
class Answer:
    """The model's answer to a user.

    Attributes:
      text: the final answer.
      draft: the best candidate, before tools were asked.
      candidates: all candidates.
      turns: the queries to the tools, with their answers.
    """

    text: str
    draft: str
    candidates: Sequence[Candidate]
    turns: Sequence[ToolTurn] = ()


def answered(model: DialogModel, contexts: Sequence[str], toolset: Toolset | None) -> list[Answer]:
    """Answers the last turn of each context.

    A response is chosen by sample-and-rank. Then, if there are tools, the model continues with "TO TS" and a query, or
    with "TO USER" and its reply (Thoppilan et al. 2022, section 6.2), for at most `SampleAndRank.max_tool_turns`
    queries. If it does neither, or sends too many queries, the draft is the answer. So it is if the model has no room
    for the draft and the tools' answers.

    Args:
      model: the model.
      contexts: the dialogs so far, each a sequence of lines that ends with a user's turn.
      toolset: the tools, or None.
    """
    rated = model.candidates([f"{context}{RESPONSE}" for context in contexts])
    answers = [_drafted(model, candidates) for candidates in rated]
    if toolset is None:
        return answers
    open_dialogs = {
        number: context + turn(RESPONSE, answers[number].draft)
        for number, context in enumerate(contexts)
        if answers[number].draft != NOTHING_SAFE
    }
    for number_of_turn in range(model.options.max_tool_turns + 1):
        is_last = number_of_turn == model.options.max_tool_turns
        open_dialogs = _researched(model, open_dialogs, answers, toolset, may_ask=not is_last)
    return answers


def _drafted(model: DialogModel, candidates: Sequence[Candidate]) -> Answer:
    ranked = model.options.ranked(candidates)
    draft = ranked[0].text if ranked else NOTHING_SAFE
    return Answer(draft, draft, candidates)


def _researched(
    model: DialogModel, dialogs: dict[int, str], answers: list[Answer], toolset: Toolset, *, may_ask: bool
) -> dict[int, str]:
    """Takes one turn of each open dialog, puts replies into the answers, and returns the dialogs still open."""
    going_on: dict[int, str] = {}
    dialogs = {number: dialog for number, dialog in dialogs.items() if model.has_room(f"{dialog}{TO}")}
    turns = model.continued([f"{dialog}{TO}" for dialog in dialogs.values()])
    for (number, dialog), text in zip(dialogs.items(), turns, strict=True):
        addressee, _, content = text.partition(" ")
        if addressee == USER and content:
            answers[number] = dataclasses.replace(answers[number], text=content)
        elif addressee == TOOLSET and content and may_ask:
            found = (toolset.answers(content) or [NOTHING_FOUND])[0]
            going_on[number] = dialog + turn(TO, text) + turn(TOOL, found)
            asked = (*answers[number].turns, ToolTurn(content, found))
            answers[number] = dataclasses.replace(answers[number], turns=asked)
    return going_on
