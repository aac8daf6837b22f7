"""Rules that choose variables by regular expressions on their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import meshtf as mtf
from meshtf.errors import GraphError, nearest

NO_NAME_MATCHES = """\
{kind}: the regular expression {pattern!r} finds no variable{hint}
The trainable variables are: {names}."""

_IN_A_STACK = """\
; it finds "{name}", but the layers of a scan are one variable: build the stack with unroll=True"""

_LISTED = 20  # variables' names in a message


def check_patterns(owner: object, field: str, patterns: Sequence[str]) -> None:
    """Checks that a field is a sequence of regular expressions. One string alone would be read letter by letter.

    Raises:
      ValueError: it is not.
    """
    kind = type(owner).__name__
    is_sequence = isinstance(patterns, Iterable) and not isinstance(patterns, str)
    if not is_sequence or not all(isinstance(pattern, str) for pattern in patterns):
        raise ValueError(f"{kind}: {field} must be a sequence of regular expressions, and is {patterns!r}")
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{kind}: {field} has {pattern!r}, which is not a regular expression: {error}") from None


def check_patterns_match(owner: object, patterns: Iterable[str], graph: mtf.Graph) -> None:
    """Checks that each regular expression matches a trainable variable: one that matches none is misspelt.

    Raises:
      GraphError: one matches none.
    """
    names = [variable.full_name for variable in graph.trainable_variables]
    saved_names = [name for variable in graph.trainable_variables for name in variable.saved_names]
    for pattern in patterns:
        if not any(re.search(pattern, name) for name in names):
            parts = {part for name in names for part in (name, *name.split("/"))}
            listed = ", ".join([*names[:_LISTED], *(["..."] if len(names) > _LISTED else [])])
            in_stack = next((name for name in saved_names if re.search(pattern, name)), None)
            hint = nearest(pattern, parts) if in_stack is None else _IN_A_STACK.format(name=in_stack)
            kind = type(owner).__name__
            raise GraphError(NO_NAME_MATCHES.format(kind=kind, pattern=pattern, hint=hint, names=listed))


def is_found_by(patterns: Iterable[str], name: str) -> bool:
    """Whether some regular expression matches a part of the name."""
    return any(re.search(pattern, name) for pattern in patterns)
