"""Checks whether processes have the same texts, and finds the first difference."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def first_differing(digests: Sequence[Mapping[str, str]]) -> tuple[int, str] | None:
    """Returns the first process that differs from process 0, and the first part that differs, or None.

    `digests`: for each process, the digest of each part by its name.
    """
    first = digests[0]
    for process, own in enumerate(digests):
        for part in dict.fromkeys([*first, *own]):
            if own.get(part) != first.get(part):
                return process, part
    return None


def first_difference(one: str, other: str) -> tuple[str, str]:
    """Returns the first lines that differ in two texts. "(nothing)" stands for a line beyond the end."""
    pairs = itertools.zip_longest(one.splitlines(), other.splitlines(), fillvalue="(nothing)")
    return next(((a, b) for a, b in pairs if a != b), ("", ""))
