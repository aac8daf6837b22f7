"""The result of a search: the layout, why it is chosen, and the runners-up."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from meshtf.layout_search._pricing import MeshLayout, PricedLayout
from meshtf.layout_search.search_progress import SearchEnd
from meshtf.lowering.report.text_table import bytes_text, seconds_text
from meshtf_programs.strict_json import json_text

_COSTS = 3
_LEAST_TOLD = 0.001
"""The least share of a step's time by which a cost must differ to be shown."""

_BOUND = """\
no layout takes less than {least}: all products at full speed, divided evenly among {cores}. Here products take \
{products} and all else {other}, which the bound leaves out: the best layout may be far above it"""


@dataclasses.dataclass(frozen=True)
class LayoutChoice:
    """The layout that fits and has the least predicted time among the priced ones. Print it.

    Attributes:
      program: its name.
      machine: its name.
      best: the layout, its predicted seconds and its memory.
      runners_up: the next fastest layouts that fit and have other costs.
      memory_per_core: the bytes of memory that it had to fit into.
      layouts_priced: how many layouts were planned and predicted.
      seconds_in_any_memory: the seconds of the fastest priced layout, which may not fit.
      least_seconds: a lower bound on the seconds of any layout: all products, divided evenly among all cores, at the
        share of the machine's peak that they reach. It leaves out memory traffic and communication, which make every
        layout slower.
      is_proven: whether all layouts with rules for the whole program were priced, so that none of them is better.
        Where several axes split one dimension, they are in the mesh's order.
      end: how the search ended.

    Examples:
      >>> program = mtf.function(lambda x: 2.0 * x, mtf.PlanMeshImpl("rows:2", ""), {"x": mtf.TensorSpec("batch:64")})
      >>> found = mtf.auto_layout(program, "rows:2", "v5e")
      >>> isinstance(found, mtf.LayoutChoice), found.is_proven, found.end.reason
      (True, True, 'all')
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
    end: SearchEnd

    @property
    def was_cut_short(self) -> bool:
        """Whether a limit ended the search."""
        return self.end.is_limit

    @property
    def layout(self) -> MeshLayout:
        """The mesh and the rules that were chosen."""
        return self.best.choice

    def gin_text(self, scope: str = "Training") -> str:
        """Returns the choice as lines of a gin file."""
        return "\n".join(f"{scope}.{name} = {_gin(value)}" for name, value in self.layout.bindings().items())

    def __str__(self) -> str:
        best, memory = self.best, bytes_text(self.memory_per_core).strip()
        lines = [
            f"layout of {self.program} on {self.machine}, {self._how_sure()}:",
            *(f"  {line}" for line in self.gin_text().splitlines()),
            f"  {seconds_text(best.seconds)} a step as predicted: {_listed(best.parts)}",
            f"  {self._bound()}",
            f"  {bytes_text(best.peak_bytes).strip()} a core of {memory}",
        ]
        if self.seconds_in_any_memory < best.seconds:
            lines.append(f"  with more memory a core it could take {seconds_text(self.seconds_in_any_memory)}")
        lines += [f"  {_against(best, other)}" for other in self.runners_up]
        return "\n".join([*lines, f"  {self.end}"])

    def _bound(self) -> str:
        """Returns a line on the bound, and why the best layout may be far above it."""
        products, cores = dict(self.best.parts).get("products", 0.0), self.layout.mesh_shape.size
        return _BOUND.format(
            least=seconds_text(self.least_seconds),
            cores=f"{cores} core{'s' if cores > 1 else ''}",
            products=seconds_text(products),
            other=seconds_text(self.best.seconds - products),
        )

    def _how_sure(self) -> str:
        if self.layout.layout.places:
            return f"the best of {self.layouts_priced}, with overrides by place where they pay"
        if self.is_proven:
            return f"the best of all {self.layouts_priced}"
        if self.was_cut_short:
            return f"the best of {self.layouts_priced}, as the search had to end before it finished"
        return f"the best of {self.layouts_priced} that a search has priced"


def _listed(parts: Sequence[tuple[str, float]]) -> str:
    """Returns the largest parts as text, with the sum of the others."""
    others = sum(seconds for _, seconds in parts[_COSTS:])
    told = [*parts[:_COSTS], *([("others", others)] if others else [])]
    return ", ".join(f"{name} {seconds_text(seconds)}" for name, seconds in told)


def _against(best: PricedLayout, other: PricedLayout) -> str:
    """Returns a line on a runner-up: how much slower it is, and the costs that make it so."""
    own: Mapping[str, float] = dict(best.parts)
    more = [(name, seconds - own.get(name, 0.0)) for name, seconds in other.parts]
    why = sorted((cost for cost in more if cost[1] > _LEAST_TOLD * best.seconds), key=lambda cost: -cost[1])[:_COSTS]
    text = "; ".join(f"{name} = {value!r}" for name, value in other.choice.bindings().items() if value is not None)
    slower = f"{100 * (other.seconds / best.seconds - 1):.1f} % slower" if best.seconds else "slower"
    return f"{slower}: {text}" + (f" ({', '.join(f'{n} +{seconds_text(s)}' for n, s in why)})" if why else "")


def _gin(value: str | None) -> str:
    return "None" if value is None else json_text(value, ensure_ascii=False)
