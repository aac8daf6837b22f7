"""A rule that maps tensors of another library to tensors of meshtf, and the order of their axes on each side."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from meshtf.checkpoint.conversion.axes import Axes, RuleFault
from meshtf.checkpoint.conversion.names import Labels, NamePattern

_LINE = re.compile(r"(\S+) \[([^\]]*)\] = (\S+)(?: \[([^\]]*)\])?")
_NO_RULE = """\
this is not a rule:
    {line}
A rule is "name there [axes] = name here [axes]"; the last axes may be left out if both are the same"""


@dataclasses.dataclass(frozen=True)
class Side:
    """The tensors of a rule on one side: their names, and their axes. An axis is in the names or in the shape."""

    name: NamePattern
    axes: Axes

    @property
    def all_axes(self) -> frozenset[str]:
        return frozenset((*self.name.axes, *self.axes.names))

    def names(self, numbers: Mapping[str, int], sizes: Mapping[str, int], labels: Labels) -> Iterator[str]:
        """The names of all its tensors that have the given numbers."""
        free = [axis for axis in self.name.axes if axis not in numbers]
        for own in itertools.product(*(range(sizes[axis]) for axis in free)):
            yield self.name.at({**numbers, **dict(zip(free, own, strict=True))}, labels)


@dataclasses.dataclass(frozen=True)
class TensorRule:
    """Tensors of another library and tensors of meshtf that hold the same numbers.

    Attributes:
      there: the tensors in the other library.
      here: the tensors in meshtf's checkpoints.
      when: conditions on settings. The rule applies only to models that satisfy them.

    Raises:
      RuleFault: if an axis is on only one side, or is in both the name and the shape of a tensor.
    """

    there: Side
    here: Side
    when: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for side in (self.there, self.here):
            if both := set(side.name.axes) & set(side.axes.names):
                raise RuleFault(f"{side.name.text}: {', '.join(sorted(both))} is in its name and in its shape")
        if other := self.there.all_axes ^ self.here.all_axes:
            raise RuleFault(
                f"{self.there.name.text} and {self.here.name.text}: {', '.join(sorted(other))} is on one side only"
            )


def placed(rules: Sequence[TensorRule], sizes: Mapping[str, int]) -> list[TensorRule]:
    """The rules in the same order. Each part of a tensor that several rules share now has its start."""
    totals: dict[tuple[str, int], int] = {}
    starts = []
    for rule in rules:
        own = {}
        for number in rule.there.axes.parts:
            key = (rule.there.name.text, number)
            own[number] = totals.get(key, 0)
            totals[key] = own[number] + rule.there.axes.part_size(number, sizes)
        starts.append(own)
    return [
        rule if not own else dataclasses.replace(rule, there=_with_parts(rule.there, own, totals))
        for rule, own in zip(rules, starts, strict=True)
    ]


def _with_parts(side: Side, starts: Mapping[int, int], totals: Mapping[tuple[str, int], int]) -> Side:
    axes = side.axes.placed(starts, {number: totals[side.name.text, number] for number in starts})
    return dataclasses.replace(side, axes=axes)


def rules_of(entry: Mapping[str, Any]) -> list[TensorRule]:
    """The rules of a table. Its `rules` has one rule on each line, and `when` has their conditions.

    Raises:
      RuleFault: if a line is no rule. The message shows the line.
    """
    if unknown := sorted(set(entry) - {"rules", "when"}):
        raise RuleFault(f"[[tensors]] has {unknown[0]!r}; there are rules and when")
    when: Sequence[str] = entry.get("when", ())
    lines = (line.strip() for line in entry["rules"].splitlines())
    return [_rule(line, tuple(when)) for line in lines if line and not line.startswith("#")]


def _rule(line: str, when: tuple[str, ...]) -> TensorRule:
    match = _LINE.fullmatch(line)
    if match is None:
        raise RuleFault(_NO_RULE.format(line=line))
    there, there_axes, here, here_axes = match.groups()
    sides = ((there, there_axes), (here, there_axes if here_axes is None else here_axes))
    return TensorRule(*(Side(NamePattern(name), Axes.parse(axes)) for name, axes in sides), when=when)
