"""Generated dialogs, as text to pre-train on and as labelled dialogs for fine-tuning."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import gin

from meshtf.number_checks import is_integer
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.sources.document import Document
from meshtf.train.dialog.questions import FIRST_NAMES, KINDS, LAST_NAMES, Question, drawn_question, drawn_value
from meshtf.train.dialog.responses import INSULTS, VAGUE, Quality, drawn_response, informed_reply, ratings
from meshtf.train.dialog.roles import ATTRIBUTES, GROUNDED, NO, RESPONSE, TO, TOOL, TOOLSET, USER, YES, turn

FOUND_DIALOGS = Quality(sensible=0.6, specific=0.7, interesting=0.3, safe=0.7, right=0.5)
"""The quality of responses in text to pre-train on."""

CHOSEN_DIALOGS = Quality(sensible=0.85, specific=0.8, interesting=0.45, safe=0.9, right=0.7)
"""The quality of responses that fine-tuning learns to generate."""

RATED_DIALOGS = Quality(sensible=0.6, specific=0.6, interesting=0.5, safe=0.5, right=0.5)
"""The quality of responses that fine-tuning learns to rate."""

_EARLIER_TURNS = 0.25
"""How often an exchange precedes the question."""


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class DialogText:
    """Dialogs without labels: the text to pre-train on. Many of their responses are off the topic, rude or wrong.

    Attributes:
      count: the number of dialogs, each of one to three questions with a response.
      seed: decides everything that is drawn.
    """

    count: int = 16_000
    seed: int = 0

    def __post_init__(self) -> None:
        _check(self)

    def __str__(self) -> str:
        return f"{self.count:,} generated dialogs"

    def documents(self) -> Iterator[Document]:
        for number in range(self.count):
            draws = random.Random(f"dialog {self.seed} {number}")
            lines = [_exchange(draws, FOUND_DIALOGS) for _ in range(draws.randrange(1, 4))]
            yield Document(f"dialog {number}", "".join(lines).encode())


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class LabelledDialogs:
    """Dialogs for one fine-tuning that mixes generation and discrimination, for the objective `TextContinuations`.

    Each dialog gives eight documents, of a given text, a tab, and a text to learn:
    - its response after "RESPONSE";
    - the rating of a response after each of "SENSIBLE", "SPECIFIC", "INTERESTING" and "SAFE";
    - a query to the tools, and the reply that uses its result, after "TO";
    - the rating of such a reply after "GROUNDED".

    Attributes:
      count: the number of dialogs.
      seed: decides everything that is drawn.
    """

    count: int = 6_000
    seed: int = 1

    def __post_init__(self) -> None:
        _check(self)

    def __str__(self) -> str:
        return f"{self.count:,} generated dialogs with labels"

    def documents(self) -> Iterator[Document]:
        for number in range(self.count):
            draws = random.Random(f"labels {self.seed} {number}")
            pairs = [*_generation(draws), *_discrimination(draws), *_research(draws)]
            for part, (given, learned) in enumerate(pairs):
                yield Document(f"part {part} of labelled dialog {number}", f"{given}\t{learned}".encode())


@gin.configurable(module="meshtf.train")
def dialog_words() -> tuple[str, ...]:
    """The words of generated dialogs, for a `WordVocabulary`. Digits are tokens of their own."""
    texts = [VAGUE, *INSULTS, *FIRST_NAMES, *LAST_NAMES, "plus minus + - ="]
    for kind in KINDS:
        texts += [kind.question.format(subject=""), kind.statement, *kind.values, kind.remark]
    inner = [f" {word}" for text in texts for word in text.split()] + [f" {digit}" for digit in range(10)]
    roles = [USER, RESPONSE, TO, TOOL, *ATTRIBUTES, GROUNDED]
    begins = [*FIRST_NAMES, "what", "where", "which"]
    return tuple(dict.fromkeys([*roles, f" {USER}", f" {TOOLSET}", *inner, *begins]))


def _exchange(draws: random.Random, quality: Quality) -> str:
    question = drawn_question(draws, held_out=False)
    return turn(USER, question.text) + turn(RESPONSE, drawn_response(question, quality, draws))


def _context(draws: random.Random, question: Question) -> str:
    """The question, perhaps with an exchange before it."""
    before = _exchange(draws, CHOSEN_DIALOGS) if draws.random() < _EARLIER_TURNS else ""
    return before + turn(USER, question.text)


def _generation(draws: random.Random) -> Iterator[tuple[str, str]]:
    question = drawn_question(draws, held_out=False)
    response = drawn_response(question, CHOSEN_DIALOGS, draws)
    yield f"{_context(draws, question)}{RESPONSE}", f" {response}\n"


def _discrimination(draws: random.Random) -> Iterator[tuple[str, str]]:
    question = drawn_question(draws, held_out=False)
    response = drawn_response(question, RATED_DIALOGS, draws)
    rated = ratings(question, response)
    given = _context(draws, question) + turn(RESPONSE, response)
    for attribute in ATTRIBUTES:
        yield given + attribute, YES if rated[attribute] else NO


def _research(draws: random.Random) -> Iterator[tuple[str, str]]:
    question = drawn_question(draws, held_out=False)
    draft = drawn_response(question, CHOSEN_DIALOGS, draws)
    given = _context(draws, question) + turn(RESPONSE, draft)
    yield f"{given}{TO}", f" {TOOLSET} {question.query}\n"
    researched = given + turn(TO, f"{TOOLSET} {question.query}") + turn(TOOL, question.evidence)
    reply = informed_reply(question, draft)
    yield f"{researched}{TO}", f" {USER} {reply}\n"
    if draws.random() < 0.5:
        reply = question.statement(drawn_value(question.kind, draws))
    is_grounded = ratings(question, reply)[GROUNDED]
    yield researched + turn(TO, f"{USER} {reply}") + GROUNDED, YES if is_grounded else NO


def _check(source: DialogText | LabelledDialogs) -> None:
    for name, least in (("count", 1), ("seed", 0)):
        value = getattr(source, name)
        if not is_integer(value, least):
            kind = type(source).__name__
            raise ConfigurationError(f"{kind}.{name} must be an integer, {least} or more, and is {value!r}")
