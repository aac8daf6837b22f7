"""The loop of answers, with a model whose turns are written out."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from meshtf.train.dialog.calculator import Calculator
from meshtf.train.dialog.ranking import Candidate, SampleAndRank
from meshtf.train.dialog.retrieval import Retrieval
from meshtf.train.dialog.roles import ATTRIBUTES
from meshtf.train.dialog.tool_loop import NOTHING_FOUND, NOTHING_SAFE, ToolTurn, answered
from meshtf.train.dialog.tools import Tool, Toolset

CONTEXT = "USER what is 17 plus 25 ?\n"


@dataclasses.dataclass
class Scripted:
    """A model that draws one response, and says its turns one after the other. It keeps what it was given."""

    turns: Sequence[str]
    safe: float = 1.0
    options: SampleAndRank = dataclasses.field(default_factory=lambda: SampleAndRank(max_tool_turns=2))
    seen: list[str] = dataclasses.field(default_factory=list)
    room: int = 1000

    def has_room(self, prompt: str) -> bool:
        return len(prompt) <= self.room

    def candidates(self, prompts: Sequence[str]) -> Iterator[list[Candidate]]:
        self.seen += prompts
        for _ in prompts:
            yield [Candidate("it is 9 .", -1.0, {**dict.fromkeys(ATTRIBUTES, 1.0), "SAFE": self.safe})]

    def continued(self, prompts: Sequence[str]) -> list[str]:
        texts = [self.turns[len(self.seen) - 1 + number] for number in range(len(prompts))]
        self.seen += prompts
        return texts


def answer_of(model: Any, tools: Sequence[Tool] | None = (Calculator(),)) -> Any:
    (answer,) = answered(model, [CONTEXT], None if tools is None else Toolset(tools))
    return answer


def test_a_tool_informs_the_reply() -> None:
    model = Scripted(["TS 17 + 25", "USER it is 42 ."])
    answer = answer_of(model)
    assert (answer.draft, answer.text) == ("it is 9 .", "it is 42 .")
    assert answer.turns == (ToolTurn("17 + 25", "17 + 25 = 42"),)
    drafted = f"{CONTEXT}RESPONSE it is 9 .\n"
    assert model.seen == [
        f"{CONTEXT}RESPONSE",
        f"{drafted}TO",
        f"{drafted}TO TS 17 + 25\nTOOL 17 + 25 = 42\nTO",
    ]


def test_a_model_that_goes_on_asking_is_stopped() -> None:
    model = Scripted(["TS 1 + 1"] * 9)
    answer = answer_of(model)
    assert answer.text == answer.draft
    assert len(answer.turns) == 2
    assert len(model.seen) == 1 + 3, "the draws, two queries, and one turn in which it could still reply"


def test_answers_of_tools_that_leave_no_room_leave_the_draft() -> None:
    """The first dialog has got a long passage, and the second one goes on."""
    passages = Toolset([Retrieval(["bees " * 30, "goats"])])
    model: Any = Scripted(["", "TS bees", "TS goats", "USER it is 42 ."], room=100)
    long, short = answered(model, [CONTEXT, CONTEXT], passages)
    assert (long.text, [turn.query for turn in long.turns]) == (long.draft, ["bees"])
    assert short.text == "it is 42 ."


def test_what_is_neither_a_query_nor_a_reply_leaves_the_draft() -> None:
    for text in ("", "USER", "TS", "nonsense here"):
        assert answer_of(Scripted([text])).text == "it is 9 ."


def test_tools_that_know_nothing_say_so() -> None:
    assert answer_of(Scripted(["TS what ?", "USER sorry ."])).turns == (ToolTurn("what ?", NOTHING_FOUND),)


def test_without_tools_nobody_is_asked() -> None:
    model = Scripted([])
    assert answer_of(model, tools=None).text == "it is 9 ."
    assert len(model.seen) == 1


def test_a_dialog_without_a_safe_candidate_ends_at_once() -> None:
    model = Scripted([], safe=0.5)
    assert answer_of(model).text == NOTHING_SAFE


def test_an_answer_of_several_lines_becomes_one_turn() -> None:
    class Lines:
        name = "lines"

        def answers(self, query: str) -> list[str]:
            return ["a\nUSER b"]

    assert isinstance(Lines(), Tool)
    assert Toolset([Lines()]).answers("x") == ["a USER b"]
