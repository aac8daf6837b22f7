"""Hints for missing names: meshtf's name for the same thing, or the name that was misspelt. `meshtf.errors` uses them.

They are in this package because programs show them before meshtf is imported.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

from meshtf_programs.synonyms import SYNONYMS

_FACES = ("meshtf", "meshtf.layers", "meshtf.models", "meshtf.optimize")
"""The public modules. For a name that is missing in one of them, a name of another one may be proposed."""


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Returns a hint `; did you mean "x"?` for a misspelt word of the user's own, or an empty string.

    A dimension, a file or a dictionary's key may be any word, so only the similarity of the letters counts.
    """
    matches = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return f'; did you mean "{matches[0]}"?' if matches else ""


def nearest_public(name: str, public: Iterable[str], module: str = "") -> str:
    """Returns a hint `; did you mean "x"?` for a name that a library lacks, or an empty string.

    It recognizes words of other libraries, other spellings (`ReduceSum`), misspellings (`eisnum`), and names with
    missing words (`variance`). It does not propose names that only look similar: `scan` is no misspelling of `is_nan`.

    Args:
      name: the name that is missing.
      public: the names that exist.
      module: their module. If it is one of meshtf's public modules, names of the others may be proposed as well.
    """
    names = list(public)
    found = _written_otherwise(name, names)
    if not found and _plain(name) in _BY_PLAIN_NAME:
        found = _synonyms(_BY_PLAIN_NAME[_plain(name)], names, module)
    elif not found:
        found = _misspelt(name, names) or _with_words_missing(name, names)
    choices = " or ".join(f'"{each}"' for each in found)
    return f"; did you mean {choices}?" if found else ""


def _written_otherwise(name: str, names: Sequence[str]) -> list[str]:
    return [each for each in names if _plain(each) == _plain(name)][:1]


def _synonyms(synonyms: Sequence[str], names: Sequence[str], module: str) -> list[str]:
    """The synonyms that are among `names`, by their short names. If there are none, those of other modules."""
    here = [short for short in (each.rpartition(".")[2] for each in synonyms) if short in names]
    return here or (list(synonyms) if module in _FACES else [])


def _misspelt(name: str, names: Sequence[str]) -> list[str]:
    """The name that was misspelt: the one with the fewest wrong letters."""
    costs = {each: _misspelling(name, each) for each in names}
    near = [each for each in names if costs[each] < _TOO_FAR]
    return [min(near, key=lambda each: (costs[each], -len(each), each))] if near else []


def _with_words_missing(name: str, names: Sequence[str]) -> list[str]:
    """The shortest name that has all the words of this one, in their order."""
    words = _words(name)
    if len(_plain(name)) < _SHORTEST_PART:
        return []
    longer = [each for each in names if _is_within(words, _words(each))]
    return [min(longer, key=lambda each: (len(_words(each)), len(each), each))] if longer else []


_TOO_FAR = 100.0
_SHORTEST_PART = 3


def _misspelling(name: str, other: str) -> float:
    """How many letters are wrong, or `_TOO_FAR`. Words are compared one by one, if there are as many in both."""
    ours, others = _words(name), _words(other)
    if len(ours) != len(others):
        ours, others = ["".join(ours)], ["".join(others)]
    if any(abs(len(a) - len(b)) > _most_wrong(b) for a, b in zip(ours, others, strict=True)):
        return _TOO_FAR  # at least this many letters are missing or extra
    costs = [_distance(a, b) for a, b in zip(ours, others, strict=True)]
    is_near = all(cost <= _most_wrong(word) for cost, word in zip(costs, others, strict=True))
    return sum(costs) if is_near else _TOO_FAR


def _most_wrong(word: str) -> int:
    """How many letters may be wrong in a word."""
    return 1 if len(word) < 7 else 2 if len(word) < 11 else 3


def _distance(a: str, b: str) -> float:
    """The number of letters that are missing, extra, wrong, or exchanged with their neighbour (Damerau 1964).

    In a word of up to four letters, a wrong letter makes another word, such as `selu` and `silu`. So it counts as two.
    """
    wrong = 2.0 if len(b) <= 4 else 1.0
    rows = [[float(i + j) if not i or not j else 0.0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i, ours in enumerate(a, 1):
        for j, theirs in enumerate(b, 1):
            least = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (wrong if ours != theirs else 0))
            if i > 1 and j > 1 and ours == b[j - 2] and a[i - 2] == theirs:
                least = min(least, rows[i - 2][j - 2] + 1)
            rows[i][j] = least
    return rows[-1][-1]


def _words(name: str) -> list[str]:
    """The words of a name, in small letters: `AdamWOptimizer` has adam, w and optimizer."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[A-Z]", name)]


def _plain(name: str) -> str:
    return re.sub(r"\W|_", "", name).lower()


def _is_within(words: Sequence[str], others: Sequence[str]) -> bool:
    """Whether all the words are among the others, in their order."""
    rest = iter(others)
    return bool(words) and all(word in rest for word in words)


_BY_PLAIN_NAME = {_plain(name): synonyms for name, synonyms in SYNONYMS.items()}
