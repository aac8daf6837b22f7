"""The grammar of patterns: sides, terms, and groups of factors.

    "batch (heads d_kv), ... length:64 -> (features: heads d_kv) batch"

A side is one term for each operand. A term lists dimensions: names, numbers, groups, and `...` for the rest. A label
names the dimension that a group makes up.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from meshtf.patterns.tokens import ARROW, CLOSE, COMMA, LABEL, NAME, NUMBER, OPEN, REST, Token, fault, tokens_of


@dataclasses.dataclass(frozen=True, slots=True)
class Factor:
    """A name, perhaps with its size; or a number alone, which is an anonymous factor."""

    name: str
    size: int | None
    start: int
    length: int


@dataclasses.dataclass(frozen=True, slots=True)
class Rest:
    """`...`: the dimensions that are not named."""

    start: int
    length: int = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Factors of one dimension: `(heads d_kv)`, or `(d_model: heads d_kv)` with its name."""

    label: str
    parts: tuple[Factor | Rest, ...]
    start: int
    length: int


Item: TypeAlias = "Factor | Rest | Group"


@dataclasses.dataclass(frozen=True, slots=True)
class Term:
    """The dimensions of one tensor."""

    items: tuple[Item, ...]
    start: int
    length: int


@dataclasses.dataclass(frozen=True, slots=True)
class Pattern:
    """A parsed pattern: a term for each operand, and a term for the result (None if there is no arrow)."""

    text: str
    operands: tuple[Term, ...]
    result: Term | None

    @property
    def names(self) -> list[str]:
        """The names on both sides."""
        items = [item for term in (*self.operands, self.result) if term is not None for item in term.items]
        parts = [part for item in items for part in (item.parts if isinstance(item, Group) else [item])]
        return [part.name for part in parts if isinstance(part, Factor) and part.name]

    def fault(self, part: Item | Term, fact: str) -> Exception:
        """An error about a part of the pattern."""
        return fault(self.text, part.start, part.length, fact)


def parse(text: str) -> Pattern:
    """Parses a pattern.

    Raises:
      ShapeError: it breaks the grammar; the message underlines where.
    """
    return _Parser(text).pattern()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._next = text, tokens_of(text), 0

    def pattern(self) -> Pattern:
        operands, result = [self._term()], None
        while self._takes(COMMA):
            operands.append(self._term())
        if self._takes(ARROW):
            result = self._term()
        if self._next < len(self._tokens):
            token = self._tokens[self._next]
            fact = {
                ARROW: 'a pattern has only one "->"',
                COMMA: "the result is one tensor",
                CLOSE: 'there is no "(" before this',
                LABEL: f'a name before ":" must be in a group, as in ({token.name}: a b)',
            }
            raise self._fault(token, fact.get(token.kind, "this is not allowed here"))
        return Pattern(self._text, tuple(operands), result)

    def _takes(self, kind: str) -> bool:
        found = self._next < len(self._tokens) and self._tokens[self._next].kind == kind
        self._next += found
        return found

    def _term(self) -> Term:
        items: list[Item] = []
        while (item := self._item()) is not None:
            if isinstance(item, Rest) and any(isinstance(other, Rest) for other in items):
                fact = '"..." may occur only once; it stands for all dimensions not named'
                raise fault(self._text, item.start, item.length, fact)
            items.append(item)
        if not items:
            at = self._tokens[self._next].start if self._next < len(self._tokens) else len(self._text)
            return Term((), at, 1)
        return Term(tuple(items), items[0].start, items[-1].start + items[-1].length - items[0].start)

    def _item(self) -> Item | None:
        if self._next == len(self._tokens):
            return None
        token = self._tokens[self._next]
        if token.kind == OPEN:
            return self._group()
        if token.kind not in (NAME, NUMBER, REST):
            return None
        self._next += 1
        return _part(token)

    def _group(self) -> Group:
        opening = self._tokens[self._next]
        parts: list[Factor | Rest] = []
        self._next += 1
        label = self._tokens[self._next] if self._next < len(self._tokens) else None
        named = label.name if label is not None and self._takes(LABEL) else ""
        while self._next < len(self._tokens) and not self._takes(CLOSE):
            token = self._tokens[self._next]
            if token.kind not in (NAME, NUMBER, REST):
                raise self._fault(token, self._not_in_a_group(token))
            parts.append(_part(token))
            self._next += 1
        closing = self._tokens[self._next - 1]
        if closing.kind != CLOSE:
            raise self._fault(opening, 'there is no ")" after this')
        length = closing.start + 1 - opening.start
        if not parts:
            raise fault(self._text, opening.start, length, "a group needs at least one factor")
        return Group(named, tuple(parts), opening.start, length)

    def _not_in_a_group(self, token: Token) -> str:
        if token.kind == OPEN:
            return "a group inside a group is not needed; list all factors in one"
        if token.kind == LABEL:
            return f'the name of a group comes first, as in ({token.name}: a b); a size follows ":" without a space'
        return 'there is no ")" before this'

    def _fault(self, token: Token, fact: str) -> Exception:
        return fault(self._text, token.start, token.length, fact)


def _part(token: Token) -> Factor | Rest:
    if token.kind == REST:
        return Rest(token.start)
    return Factor(token.name, token.size, token.start, token.length)
