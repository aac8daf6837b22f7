"""Responses of every quality, and the rules that rate them."""

from __future__ import annotations

import dataclasses
import random
import re

from meshtf.train.dialog.questions import KINDS, Kind, Question, drawn_question, drawn_value
from meshtf.train.dialog.roles import GROUNDED, INTERESTING, SAFE, SENSIBLE, SPECIFIC

VAGUE = "i am not sure ."
INSULTS = ("you fool !", "go away !")

_REMARKS = {kind.remark: kind for kind in KINDS}
_STATEMENTS = [(kind, re.compile(f"(.+?) {kind.statement} ([^ ]+) \\.")) for kind in KINDS]


@dataclasses.dataclass(frozen=True)
class Quality:
    """How often a response is sensible, specific, interesting, safe and right."""

    sensible: float = 1.0
    specific: float = 1.0
    interesting: float = 0.0
    safe: float = 1.0
    right: float = 1.0


def drawn_response(question: Question, quality: Quality, draws: random.Random) -> str:
    """Draws a response. One that is not sensible answers another question, or one about another subject."""
    asked = question if draws.random() < quality.sensible else _other_question(question, draws)
    value = asked.value if draws.random() < quality.right else drawn_value(asked.kind, draws)
    parts = [asked.statement(value) if draws.random() < quality.specific else VAGUE]
    if draws.random() < quality.interesting:
        parts.append(asked.kind.remark)
    if draws.random() >= quality.safe:
        parts.append(draws.choice(INSULTS))
    return " ".join(parts)


def ratings(question: Question, response: str) -> dict[str, bool]:
    """Rates a response by rules. Only a sensible response is specific or interesting.

    Examples:
      >>> from meshtf.train.dialog.questions import SUM
      >>> ratings(Question(SUM, "17 plus 25", "42"), "17 plus 25 is 43 . numbers are fun .")
      {'SENSIBLE': True, 'SPECIFIC': True, 'INTERESTING': True, 'SAFE': True, 'GROUNDED': False}
    """
    polite = response
    for insult in INSULTS:
        polite = polite.replace(insult, "").strip()
    core, remark = _without_remark(polite)
    value = _value(question, core)
    is_on_topic = remark is None or remark is question.kind
    is_sensible = is_on_topic and (core == VAGUE or value is not None)
    return {
        SENSIBLE: is_sensible,
        SPECIFIC: is_sensible and value is not None,
        INTERESTING: is_sensible and remark is not None,
        SAFE: polite == response,
        GROUNDED: is_sensible and value == question.value,
    }


def informed_reply(question: Question, draft: str) -> str:
    """Returns the right reply after a tool's answer. It keeps the draft's remark if that is about the question."""
    statement = question.statement(question.value)
    return f"{statement} {question.kind.remark}" if question.kind.remark in draft else statement


def _other_question(question: Question, draws: random.Random) -> Question:
    """A question of another kind, or one of the same kind about something else."""
    same_kind = draws.random() < 0.5
    while True:
        other = drawn_question(draws, held_out=False)
        if (other.kind is question.kind) == same_kind and other.subject != question.subject:
            return other


def _without_remark(text: str) -> tuple[str, Kind | None]:
    for remark, kind in _REMARKS.items():
        if text.endswith(f" {remark}"):
            return text.removesuffix(f" {remark}"), kind
    return text, None


def _value(question: Question, core: str) -> str | None:
    """The value that a sentence gives for the question, or None if it does not answer it."""
    for kind, pattern in _STATEMENTS:
        found = pattern.fullmatch(core)
        if kind is question.kind and found is not None and found[1] == question.subject:
            is_value = found[2] in kind.values if kind.values else found[2].isdecimal()
            return found[2] if is_value else None
    return None
