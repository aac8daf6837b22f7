"""Names with places for numbers: `h.{layer}.attn.{qkv}.weight` is a tensor of each layer and each of q, k, v."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from meshtf.checkpoint.conversion.axes import RuleFault

Labels = Mapping[str, tuple[str, ...]]
"""The labels of an axis, by index. For the key `layer:scope`, the texts that `{layer:scope}` stands for."""

_PLACE = re.compile(
    r"\{(?:(?P<factor>\d+)\*)?(?P<axis>[a-z_][a-z_0-9]*)(?:\+(?P<offset>\d+))?(?::(?P<view>3|[a-z_]+))?\}"
)


@dataclasses.dataclass(frozen=True)
class NamePattern:
    """A name with places for numbers.

    `{layer}` is a number from 0 on, `{2*layer+1}` is computed from it, and `{layer:3}` has three digits. An axis with
    labels is written as its label. `{layer:scope}` is the label of this name.
    """

    text: str

    def __post_init__(self) -> None:
        if left := re.search(r"[{}]", _PLACE.sub("", self.text)):
            raise RuleFault(
                f"{left[0]!r} in {self.text!r} is not part of a placeholder for a number; placeholders are "
                f"written {{layer}}, "
                f"{{layer:3}}, {{layer:scope}} or {{2*layer+1}}"
            )

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes whose numbers are in the name, each once."""
        return tuple(dict.fromkeys(match["axis"] for match in _PLACE.finditer(self.text)))

    @property
    def labelled(self) -> tuple[str, ...]:
        """The labels that the pattern uses by name, such as `layer:scope`."""
        found = (f"{match['axis']}:{match['view']}" for match in _PLACE.finditer(self.text))
        return tuple(name for name in found if not name.endswith((":None", ":3")))

    def at(self, numbers: Mapping[str, int], labels: Labels) -> str:
        """The name of the tensor with these numbers."""

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
        """Whether the pattern gives this name for some numbers. `*` matches any text."""
        pieces = _PLACE.split(self.text)[:: _PLACE.groups + 1]
        return re.fullmatch(r"\w+".join(map(re.escape, pieces)).replace(r"\*", ".*"), name) is not None
