"""Reads Slurm's lists of hosts, such as `rack[0-1]n[2-3],login1`, into names."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator

_FORM = "hosts are separated by commas, and numbers stand in brackets, as in rack[0-1]n[02-10,12]-ib,login1"


class HostListFault(ValueError):  # noqa: N818  # what is wrong with a text, in words, for others to raise
    """A text is no list of hosts. The message says why, with a caret under the place."""

    def __init__(self, text: str, at: int, why: str) -> None:
        super().__init__(f"{why}; {_FORM}:\n    {text}\n    {' ' * at}^")


@dataclasses.dataclass(frozen=True)
class Numbers:
    """The numbers from `first` to `last`, filled with zeros to `width` digits."""

    first: int
    last: int
    width: int

    def __iter__(self) -> Iterator[str]:
        return (f"{number:0{self.width}}" for number in range(self.first, self.last + 1))


@dataclasses.dataclass(frozen=True)
class HostPattern:
    """One entry of a list: its texts, and the numbers in each pair of brackets, in order."""

    parts: tuple[str | tuple[Numbers, ...], ...]

    def __iter__(self) -> Iterator[str]:
        """Yields its hosts. The numbers of the last brackets change first."""
        choices = ((part,) if isinstance(part, str) else itertools.chain(*part) for part in self.parts)
        return map("".join, itertools.product(*choices))


@dataclasses.dataclass(frozen=True)
class HostList:
    """Hosts in the order in which Slurm numbers them. Iterating gives their names.

    Attributes:
      patterns: the entries, as they are written.
    """

    patterns: tuple[HostPattern, ...]

    @classmethod
    def from_text(cls, text: str) -> HostList:
        """Reads a list of hosts.

        Raises:
          HostListFault: if the text is no list of hosts.
        """
        return cls(tuple(_Reader(text).patterns()))

    def __iter__(self) -> Iterator[str]:
        return itertools.chain(*self.patterns)

    @property
    def first(self) -> str:
        """The host where Slurm starts process 0. It reads only the first pattern, however long the list is."""
        parts = self.patterns[0].parts
        return "".join(part if isinstance(part, str) else next(iter(part[0])) for part in parts)


class _Reader:
    """Reads a text from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def patterns(self) -> Iterator[HostPattern]:
        yield self._pattern()
        while self._next() == ",":
            self._at += 1
            yield self._pattern()
        if self._next():
            raise self._fault("a closing bracket has no opening bracket")

    def _pattern(self) -> HostPattern:
        parts: list[str | tuple[Numbers, ...]] = []
        while self._next() not in ("", ",", "]"):
            parts.append(self._in_brackets() if self._next() == "[" else self._name())
        if not parts:
            raise self._fault("the name of a host is missing")
        return HostPattern(tuple(parts))

    def _name(self) -> str:
        found = self._taken(lambda letter: letter not in ",[]")
        if any(letter.isspace() for letter in found):
            self._at -= len(found) - next(i for i, letter in enumerate(found) if letter.isspace())
            raise self._fault("a name has no spaces")
        return found

    def _in_brackets(self) -> tuple[Numbers, ...]:
        opened, found = self._at, []
        while self._at == opened or self._next() == ",":
            self._at += 1
            found.append(self._numbers())
        if self._next() == "":
            self._at = opened
            raise self._fault("a bracket is not closed")
        if self._next() != "]":
            raise self._fault("brackets have numbers and ranges of numbers, separated by commas")
        self._at += 1
        return tuple(found)

    def _numbers(self) -> Numbers:
        first = last = self._digits()
        begin = self._at
        if self._next() == "-":
            self._at += 1
            last = self._digits()
        if int(last) < int(first):
            self._at = begin + 1
            raise self._fault(f"a range goes up, and {last} is less than {first}")
        return Numbers(int(first), int(last), len(first))

    def _digits(self) -> str:
        found = self._taken(lambda letter: letter.isascii() and letter.isdecimal())
        if not found:
            raise self._fault("a number is missing")
        return found

    def _taken(self, is_taken: Callable[[str], bool]) -> str:
        found = "".join(itertools.takewhile(is_taken, self._text[self._at :]))
        self._at += len(found)
        return found

    def _next(self) -> str:
        return self._text[self._at : self._at + 1]

    def _fault(self, why: str) -> HostListFault:
        return HostListFault(self._text, self._at, why)
