"""Rules that say which tensor of a checkpoint a variable comes from.

With the rules ("head/.*", None) and ("new/(.*)", "old/$1"), where $1 stands for the first group, "new/w" comes from
"old/w". "head/w" is left out, and "other/w" comes from the tensor of the same name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from meshtf.errors import CheckpointError

_EXAMPLE = r"""[("new/(.*)", r"old/\1"), ("head/.*", None)]"""


class NameRules:
    """Pairs of a regular expression, which must match a whole name, and a replacement, or None to leave the name out.

    Raises:
      CheckpointError: if the rules are no list of pairs, or an expression, or its replacement, cannot be read.
    """

    def __init__(self, rules: Sequence[tuple[str, str | None]]) -> None:
        self._rules: list[tuple[re.Pattern[str], str | None]] = []
        if isinstance(rules, str | Mapping):
            raise CheckpointError(f"name rules must be a list of pairs, such as {_EXAMPLE}, and not {rules!r}")
        for rule in rules:
            if not _is_rule(rule):
                raise CheckpointError(f"a name rule must be a pair, as in {_EXAMPLE}, and is {rule!r}")
            pattern, replacement = rule
            try:
                self._rules.append((re.compile(pattern), replacement))
            except re.error as error:
                raise CheckpointError(f'name rule "{pattern}" is not a regular expression: {error}') from None

    def sources(self, names: Iterable[str]) -> dict[str, str]:
        """Returns the name that each name comes from, without those that are left out.

        Raises:
          CheckpointError: if a rule applies to no name.
        """
        listed = list(names)
        used, found = set(), {}
        for name in listed:
            number, source = self._apply(name)
            used.add(number)
            if source is not None:
                found[name] = source
        for number, (pattern, _) in enumerate(self._rules):
            if number not in used:
                raise CheckpointError(
                    f'name rule "{pattern.pattern}" applies to none of the {len(listed)} names, such as '
                    f"{', '.join(listed[:3])}; a rule must match a whole name, and only the first rule that "
                    "matches a name applies to it"
                )
        return found

    def _apply(self, name: str) -> tuple[int | None, str | None]:
        for number, (pattern, replacement) in enumerate(self._rules):
            if match := pattern.fullmatch(name):
                try:
                    return number, None if replacement is None else match.expand(replacement)
                except (re.error, IndexError) as error:
                    raise CheckpointError(f'name rule "{pattern.pattern}": bad name "{replacement}": {error}') from None
        return None, name


def _is_rule(rule: object) -> bool:
    if not isinstance(rule, tuple | list) or len(rule) != 2:
        return False
    pattern, replacement = rule
    return isinstance(pattern, str) and (replacement is None or isinstance(replacement, str))
