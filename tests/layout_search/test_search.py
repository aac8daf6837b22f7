"""Descents take turns, and one that cannot become the best ends."""

from __future__ import annotations

from collections.abc import Sequence

from meshtf.layout_search._choices import Choice
from meshtf.layout_search._search import Rank, descended


class Descents:
    """Stands in for descents: `seconds` has what each reaches after each round, by its name."""

    def __init__(self, **seconds: Sequence[float]) -> None:
        self._seconds = seconds
        self.starts = [_choice(name, 0) for name in seconds]
        self.rounds: list[str] = []

    def rank(self, choice: Choice) -> Rank:
        name, number = _name_and_round(choice)
        seconds = self._seconds[name][number]
        return seconds, seconds, 0

    def after_round(self, choice: Choice) -> Choice:
        name, number = _name_and_round(choice)
        self.rounds.append(name)
        return _choice(name, number + 1)

    def ends(self) -> list[float]:
        return [self.rank(end)[0] for end in descended(self.starts, self.rank, self.after_round)]


def _choice(name: str, number: int) -> Choice:
    return Choice((frozenset({name}), frozenset({str(number)})))


def _name_and_round(choice: Choice) -> tuple[str, int]:
    (name,), (number,) = choice.layout
    return name, int(number)


def test_descents_take_turns_and_the_best_goes_first() -> None:
    descents = Descents(second=[11, 8.5, 7, 7], first=[10, 9, 8, 8])
    assert descents.ends() == [8, 7]
    assert descents.rounds == ["first", "second", "second", "first", "second", "first"]


def test_a_descent_ends_when_another_such_gain_would_not_make_it_the_best() -> None:
    descents = Descents(fast=[10, 8, 7.9, 7.9], slow=[12, 11.5, 6])
    assert descents.ends() == [7.9, 11.5]
    assert descents.rounds == ["fast", "slow", "fast", "fast"]
