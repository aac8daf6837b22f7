"""A small parallel corpus that needs no file: numbers in English words, and the same numbers in French words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import gin

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.sources.document import Document

LARGEST = 1_000_000
"""All numbers are below it."""

# fmt: off
_ENGLISH = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)
_ENGLISH_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_FRENCH = (
    "zéro", "un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit", "neuf", "dix", "onze", "douze", "treize",
    "quatorze", "quinze", "seize", "dix-sept", "dix-huit", "dix-neuf",
)
_FRENCH_TENS = ("vingt", "trente", "quarante", "cinquante", "soixante")
# fmt: on


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class NumberWords:
    """Pairs of an English and a French text that name the same number, for `TextPairs`. Rules make both texts.

    The pairs are regular, and each has one right translation. So the quality of a model shows whether it learns to
    translate at all, but not how well it would translate real text.

    Attributes:
      count: how many numbers there are, from 0 on.
    """

    count: int = 10_000

    def __post_init__(self) -> None:
        if not isinstance(self.count, int) or not 1 <= self.count <= LARGEST:
            raise ConfigurationError(f"NumberWords.count must be from 1 to {LARGEST:,}, and is {self.count!r}")

    def __str__(self) -> str:
        return f"{self.count:,} numbers in English and French words"

    def documents(self) -> Iterator[Document]:
        for number in range(self.count):
            yield Document(f"the number {number}", f"{english(number)}\t{french(number)}".encode())


def english(number: int) -> str:
    """The number from 0 to 999,999 in English words: "one thousand two hundred and five" for 1,205."""
    if number < 20:
        return _ENGLISH[number]
    if number < 100:
        rest = number % 10
        return _ENGLISH_TENS[number // 10 - 2] + (f"-{_ENGLISH[rest]}" if rest else "")
    unit, word = (100, "hundred") if number < 1000 else (1000, "thousand")
    rest = number % unit
    joined = " and " if rest < 100 else " "
    return f"{english(number // unit)} {word}" + (f"{joined}{english(rest)}" if rest else "")


def french(number: int) -> str:
    """The number from 0 to 999,999 in French words: "mille deux cent cinq" for 1,205."""
    if number < 100:
        return _french_below_100(number)
    unit, word = (100, "cent") if number < 1000 else (1000, "mille")
    times, rest = divmod(number, unit)
    # "cent" and "vingt" take an s if they are multiplied and end the number. "mille" never takes one.
    own = french(times).removesuffix("s") if unit == 1000 and _is_plural(times) else french(times)
    parts = [own] if times > 1 else []
    parts.append(f"{word}s" if unit == 100 and times > 1 and not rest else word)
    return " ".join([*parts, french(rest)] if rest else parts)


def _french_below_100(number: int) -> str:
    if number < 20:
        return _FRENCH[number]
    tens, rest = divmod(number, 10)
    if tens in (7, 9):
        tens, rest = tens - 1, rest + 10
    if tens == 8:
        return "quatre-vingts" if not rest else f"quatre-vingt-{_FRENCH[rest]}"
    if not rest:
        return _FRENCH_TENS[tens - 2]
    joined = " et " if rest in (1, 11) else "-"
    return f"{_FRENCH_TENS[tens - 2]}{joined}{_FRENCH[rest]}"


def _is_plural(number: int) -> bool:
    """Tells whether the number's last word has the s of several hundreds or of four twenties."""
    return number % 100 == 80 or (number % 100 == 0 and number > 100)
