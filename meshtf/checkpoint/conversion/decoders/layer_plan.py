"""Divides layers of several kinds into stacks: the first layers, a period that repeats, and the last layers.

With s for a layer that sees a window, f for one that sees everything, and eight layers

    s s f s s f s s   is  (s s f) twice, then (s s)
    d m m m m m m m   is  (d), then (m) seven times
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

Kinds = Mapping[str, Mapping[str, str]]
"""The sublayers of each kind of layer, in order, as gin text by scope."""


@dataclasses.dataclass(frozen=True)
class Segment:
    """The layers of one stack: the sequence `kinds`, `repeats` times."""

    kinds: tuple[str, ...]
    repeats: int


@dataclasses.dataclass(frozen=True)
class LayerPlan:
    """The stacks of a model.

    Attributes:
      segments: the stacks.
      kinds: the sublayers of each kind of layer.
      imports: modules that gin must import to find the sublayers.
    """

    segments: tuple[Segment, ...]
    kinds: Kinds
    imports: tuple[str, ...] = ()

    @classmethod
    def of(cls, layers: Sequence[str], kinds: Kinds, imports: Sequence[str] = ()) -> LayerPlan:
        """The plan that builds the fewest layers, for the kinds of all layers in order."""
        return cls(_shortest(tuple(layers)), kinds, tuple(imports))

    @property
    def places(self) -> dict[str, list[tuple[int, str]]]:
        """The number of each layer that has a scope, by scope, with its place `stack_1/layer_000/self_attention_1`."""
        found: dict[str, list[tuple[int, str]]] = {scope: [] for kind in self.kinds.values() for scope in kind}
        number = 0
        for index, segment in enumerate(self.segments):
            stack = f"stack_{index}/" if len(self.segments) > 1 else ""
            for layer in range(segment.repeats):
                seen: Counter[str] = Counter()
                for kind in segment.kinds:
                    for scope in self.kinds[kind]:
                        place = f"{scope}_{seen[scope]}" if seen[scope] else scope
                        found[scope].append((number, f"{stack}layer_{layer:03d}/{place}"))
                        seen[scope] += 1
                    number += 1
        return found

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """The labels for names in rules.

        `{self_attention}` is the number of a layer that has this sublayer. `{self_attention:here}` is the scope of the
        sublayer's variables, and `{self_attention:layer}` is the scope of the whole layer.
        """
        numbers = {scope: tuple(str(number) for number, _ in own) for scope, own in self.places.items()}
        for scope, own in self.places.items():
            numbers[f"{scope}:here"] = tuple(place for _, place in own)
            numbers[f"{scope}:layer"] = tuple(place.rpartition("/")[0] for _, place in own)
        return numbers

    def gin(self, owner: str) -> str:
        """The stacks as gin text, for a model of this class. The longest stack has no scope."""
        longest = max(range(len(self.segments)), key=lambda index: self.segments[index].repeats)
        scopes = ["" if index == longest else f"stack_{index}/" for index in range(len(self.segments))]
        lines = [
            line for scope, segment in zip(scopes, self.segments, strict=True) for line in self._stack(scope, segment)
        ]
        if len(scopes) > 1:
            stacks = ", ".join(f"@{scope}TransformerStack()" for scope in scopes)
            lines = [f"{owner}.stack = @ChainedStacks()", f"ChainedStacks.stacks = [{stacks}]", *lines]
        return "\n".join([*(f"import {module}" for module in self.imports), *lines])

    def _stack(self, scope: str, segment: Segment) -> list[str]:
        sublayers = ", ".join(sublayer for kind in segment.kinds for sublayer in self.kinds[kind].values())
        return [
            f"{scope}TransformerStack.num_layers = {segment.repeats}" if scope else f"num_layers = {segment.repeats}",
            f"{scope}TransformerStack.sublayers = [{sublayers}]",
        ]


def _shortest(layers: tuple[str, ...]) -> tuple[Segment, ...]:
    """The first layers, the period, and the last layers. Empty segments are left out."""
    count = len(layers)
    best, fewest = (Segment(layers, 1),), count
    for first, period in itertools.product(range(count), range(1, count)):
        if first + period >= fewest:
            continue
        kinds, repeats = layers[first : first + period], 1
        while layers[first + repeats * period : first + (repeats + 1) * period] == kinds:
            repeats += 1
        last = layers[first + repeats * period :]
        if repeats > 1 and (built := first + period + len(last)) < fewest:
            ends = [Segment(layers[:first], 1)] * bool(first), [Segment(last, 1)] * bool(last)
            best, fewest = (*ends[0], Segment(kinds, repeats), *ends[1]), built
    return best
