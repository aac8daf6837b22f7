"""Names with places for numbers: `h.{layer}.attn.{qkv}.weight` is a tensor of each layer and each of q, k, v."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from meshtf.checkpoint.conversion.axes import RuleFault

Labels = Mapping[str, tuple[str, ...]]
"""The names of an axis's places; for `layer:scope`, the texts that `{layer:scope}` stands for."""

_PLACE = re.compile(
    r"\{(?:(?P<factor>\d+)\*)?(?P<axis>[a-z_][a-z_0-9]*)(?:\+(?P<offset>\d+))?(?::(?P<view>3|[a-z_]+))?\}"
)


@dataclasses.dataclass(frozen=True)
class NamePattern:
    """A name with places for numbers.

    `{layer}` is a number from 0 on, `{2*layer+1}` is made from it, and `{layer:3}` has three digits. If the axis has
    labels, its label is written. `{layer:scope}` is the label under this name.
    """

    text: str

    def __post_init__(self) -> None:
        if left := re.search(r"[{}]", _PLACE.sub("", self.text)):
            raise RuleFault(
                f"{left[0]!r} in {self.text!r} is part of no place for a number; those are written {{layer}}, "
                f"{{layer:3}}, {{layer:scope}} or {{2*layer+1}}"
            )

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes whose numbers are in the name, each once."""
        return tuple(dict.fromkeys(match["axis"] for match in _PLACE.finditer(self.text)))

    @property
    def labelled(self) -> tuple[str, ...]:
        """The labels that it asks for by name, such as `layer:scope`."""
        found = (f"{match['axis']}:{match['view']}" for match in _PLACE.finditer(self.text))
        return tuple(name for name in found if not name.endswith((":None", ":3")))

    def at(self, numbers: Mapping[str, int], labels: Labels) -> str:
        """The name of one tensor."""

        def written(match: re.Match[str]) -> str:
            number, view = numbers[match["axis"]], match["view"]
            if view not in (None, "3"):
                return labels[f"{match['axis']}:{view}"][number]
            if match["axis"] in labels:
                return labels[match["axis"]][number]
            number = number * int(match["factor"] or 1) + int(match["offset"] or 0)
            return f"{number:03d}" if view else str(number)

        return _PLACE.sub(written, self.text)

    def matches(self, name: str) -> bool:
        """Whether the pattern gives this name with some numbers; `*` is any text."""
        pieces = _PLACE.split(self.text)[:: _PLACE.groups + 1]
        return re.fullmatch(r"\w+".join(map(re.escape, pieces)).replace(r"\*", ".*"), name) is not None
