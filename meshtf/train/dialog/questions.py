"""Questions with known answers: sums and differences, and facts about people that only a library tells."""

from __future__ import annotations

import dataclasses
import hashlib
import random

# fmt: off
FIRST_NAMES = (
    "mona", "omar", "lena", "hugo", "iris", "noah", "vera", "emil", "sofia", "karl", "aida", "luca", "nina", "otto",
    "rosa", "tariq", "ulla", "jonas", "maya", "felix",
)
LAST_NAMES = (
    "bell", "stone", "field", "marsh", "hill", "brook", "frost", "wood", "lake", "reed", "vale", "ford", "snow",
    "moor", "glen", "park", "rose", "west", "north", "day",
)
# fmt: on

HELD_OUT_SHARE = 0.1


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of question about a subject.

    Attributes:
      question: the question, with {subject}.
      statement: what an answer says of the subject, before the value.
      values: the possible values. Empty for numbers.
      remark: a remark that makes an answer interesting.
    """

    question: str
    statement: str
    values: tuple[str, ...]
    remark: str


SUM = Kind("what is {subject} ?", "is", (), "numbers are fun .")
FACTS = (
    Kind(
        "where does {subject} live ?",
        "lives in",
        ("oslo", "lima", "cairo", "delhi", "quito", "paris", "kyoto", "accra", "milan", "tunis", "perth", "davos"),
        "i love to travel .",
    ),
    Kind(
        "what does {subject} grow ?",
        "grows",
        ("apples", "beans", "figs", "grapes", "melons", "onions", "plums", "rice", "tea", "wheat", "dates", "corn"),
        "gardens are lovely .",
    ),
    Kind(
        "which animals does {subject} keep ?",
        "keeps",
        ("goats", "hens", "ducks", "sheep", "cows", "horses", "bees", "geese", "llamas", "pigs", "cats", "dogs"),
        "animals make me smile .",
    ),
)
KINDS = (SUM, *FACTS)


@dataclasses.dataclass(frozen=True)
class Question:
    """A question, and its right answer.

    Attributes:
      kind: the kind of question.
      subject: the two numbers and the operation, or the person's name.
      value: the right value.
    """

    kind: Kind
    subject: str
    value: str

    @property
    def text(self) -> str:
        return self.kind.question.format(subject=self.subject)

    def statement(self, value: str) -> str:
        """The sentence that gives a value as the answer."""
        return f"{self.subject} {self.kind.statement} {value} ."

    @property
    def query(self) -> str:
        """The query to the tools."""
        if self.kind is SUM:
            return self.subject.replace("plus", "+").replace("minus", "-")
        return f"{self.subject} {self.kind.statement}"

    @property
    def evidence(self) -> str:
        """The tools' answer to the query."""
        return f"{self.query} = {self.value}" if self.kind is SUM else self.statement(self.value)


def is_held_out(subject: str) -> bool:
    """Tells whether questions about a subject are kept for evaluation."""
    digest = hashlib.blake2b(subject.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < HELD_OUT_SHARE * 2**64


def drawn_question(draws: random.Random, *, held_out: bool) -> Question:
    """Draws a question. Half of the questions are about numbers.

    The facts of training are drawn anew for each question, so only the text of a tool contains them. The held-out ones
    are those of `library`.
    """
    while True:
        question = _drawn_sum(draws) if draws.random() < 0.5 else _drawn_fact(draws)
        if is_held_out(question.subject) == held_out:
            return question if not held_out or question.kind is SUM else _known_fact(question.kind, question.subject)


def drawn_value(kind: Kind, draws: random.Random) -> str:
    """Draws any value that answers a kind of question."""
    return draws.choice(kind.values) if kind.values else str(draws.randrange(100))


def library() -> list[str]:
    """The sentences that hold the facts about the held-out people."""
    people = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    return [
        question.statement(question.value)
        for person in people
        if is_held_out(person)
        for question in (_known_fact(kind, person) for kind in FACTS)
    ]


def _drawn_sum(draws: random.Random) -> Question:
    a, b = draws.randrange(10, 100), draws.randrange(10, 100)
    if draws.random() < 0.5:
        return Question(SUM, f"{a} plus {b}", str(a + b))
    a, b = max(a, b), min(a, b)
    return Question(SUM, f"{a} minus {b}", str(a - b))


def _drawn_fact(draws: random.Random) -> Question:
    kind = draws.choice(FACTS)
    subject = f"{draws.choice(FIRST_NAMES)} {draws.choice(LAST_NAMES)}"
    return Question(kind, subject, draws.choice(kind.values))


def _known_fact(kind: Kind, subject: str) -> Question:
    digest = hashlib.blake2b(f"{subject} {kind.statement}".encode(), digest_size=8).digest()
    return Question(kind, subject, kind.values[int.from_bytes(digest, "big") % len(kind.values)])
