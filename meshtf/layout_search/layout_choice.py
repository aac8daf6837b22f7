"""What a search has found: the layout, why it is chosen, and what else there was."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from meshtf.layout_search._pricing import MeshLayout, PricedLayout

_COSTS = 3
_LEAST_TOLD = 0.001
"""Of a step's time: what a difference must be to be told."""

_GIB = 2**30


@dataclasses.dataclass(frozen=True)
class LayoutChoice:
    """The layout of least predicted time that fits, of those that were priced. `print` it.

    Attributes:
      program: its name.
      machine: its name.
      best: the layout, its predicted seconds and its memory.
      runners_up: the next quickest that fit and differ.
      memory_per_core: bytes that it had to fit into.
      layouts_priced: how many were planned and predicted.
      seconds_in_any_memory: of the quickest layout that was priced, though it may not fit.
      least_seconds: what no layout goes below: all products, divided evenly among all cores, at the machine's peak.
      is_proven: whether every layout was priced whose rules are for the whole program, so that none of these is better.
      was_cut_short: whether the search had reached its limits before it came to its end.

    Examples:
      >>> program = mtf.function(lambda x: 2.0 * x, mtf.PlanMeshImpl("rows:2", ""), {"x": mtf.TensorSpec("batch:64")})
      >>> found = mtf.auto_layout(program, "rows:2", "v5e")
      >>> isinstance(found, mtf.LayoutChoice), found.is_proven, found.was_cut_short
      (True, True, False)
      >>> print(found.gin_text().splitlines()[0])
      Training.mesh_shape = "rows:2"
    """

    program: str
    machine: str
    best: PricedLayout
    runners_up: tuple[PricedLayout, ...]
    memory_per_core: float
    layouts_priced: int
    seconds_in_any_memory: float
    least_seconds: float
    is_proven: bool
    was_cut_short: bool

    @property
    def layout(self) -> MeshLayout:
        """The mesh and the rules that were chosen."""
        return self.best.choice

    def gin_text(self, scope: str = "Training") -> str:
        """The choice as lines of a gin file."""
        return "\n".join(f"{scope}.{name} = {_gin(value)}" for name, value in self.layout.bindings().items())

    def __str__(self) -> str:
        best, memory = self.best, self.memory_per_core / _GIB
        lines = [
            f"layout of {self.program} on {self.machine}, {self._how_sure()}:",
            *(f"  {line}" for line in self.gin_text().splitlines()),
            f"  {duration(best.seconds)} a step as predicted; no layout goes below {duration(self.least_seconds)}",
            f"  {best.peak_bytes / _GIB:,.2f} GiB a core of {memory:,.2f}",
            "  what it takes: " + _listed(best.parts[:_COSTS]),
        ]
        if self.seconds_in_any_memory < best.seconds:
            lines.append(f"  with more memory a core it could take {duration(self.seconds_in_any_memory)}")
        lines += [f"  {_against(best, other)}" for other in self.runners_up]
        return "\n".join(lines)

    def _how_sure(self) -> str:
        if self.layout.layout.places:
            return f"the best of {self.layouts_priced}, with overrides by place where they pay"
        if self.is_proven:
            return f"the best of all {self.layouts_priced}"
        if self.was_cut_short:
            return f"the best of {self.layouts_priced}, as the search had to end before it was through"
        return f"the best of {self.layouts_priced} that a search has priced"


def duration(seconds: float) -> str:
    """Seconds with three digits, as `12.3 ms`."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _listed(parts: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in parts)


def _against(best: PricedLayout, other: PricedLayout) -> str:
    """A runner-up, how much slower it is, and the costs that made it so."""
    own: Mapping[str, float] = dict(best.parts)
    more = [(name, seconds - own.get(name, 0.0)) for name, seconds in other.parts]
    why = sorted((cost for cost in more if cost[1] > _LEAST_TOLD * best.seconds), key=lambda cost: -cost[1])[:_COSTS]
    text = "; ".join(f"{name} = {value!r}" for name, value in other.choice.bindings().items() if value is not None)
    slower = f"{100 * (other.seconds / best.seconds - 1):.1f} % slower" if best.seconds else "slower"
    return f"{slower}: {text}" + (f" ({', '.join(f'{n} +{duration(s)}' for n, s in why)})" if why else "")


def _gin(value: str | None) -> str:
    return "None" if value is None else f'"{value}"'
