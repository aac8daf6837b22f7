"""The progress of a search while it runs, and how it ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, TypeAlias

from meshtf.layout_search._pricing import PricedLayout, Pricing
from meshtf.layout_search._search import Limits
from meshtf.lowering.report.text_table import seconds_text

Reason: TypeAlias = Literal["all", "no improvement", "planned operations", "seconds"]

_NO_IMPROVEMENT = """\
no change that was tried makes it quicker, and the {count} layouts planned after it were slower or did not fit"""
_LIMIT = """\
it reached its limit of {limit}, {count} layouts after the best; {more} lets it continue"""
_MORE = {
    "planned operations": "--search_operations={:.0f} (max_planned_operations of auto_layout)",
    "seconds": "--search_seconds={:g} (max_seconds of auto_layout)",
}
_MUCH_MORE = 4


@dataclasses.dataclass(frozen=True, slots=True)
class SearchProgress:
    """The progress of a search, after each layout that it has planned. Print it.

    Attributes:
      program: the name of the program.
      layouts_priced: how many layouts were planned and predicted so far.
      seconds: seconds since the search began.
      best: the fastest layout so far that fits, or None.
      variant: how the searched program differs from the requested one, such as by recomputation.

    Examples:
      >>> layout = mtf.MeshLayout(mtf.convert_to_shape("rows:2"), mtf.convert_to_layout_rules("batch:rows"))
      >>> best = mtf.PricedLayout(layout, seconds=0.5, peak_bytes=2**30, parts=(("products", 0.5),))
      >>> print(mtf.SearchProgress("step", layouts_priced=12, seconds=3.0, best=best))
      layout of step: 12 tried in 3 s, the best so far takes 500 ms: rows:2, batch:rows
    """

    program: str
    layouts_priced: int
    seconds: float
    best: PricedLayout | None
    variant: str = ""

    def __str__(self) -> str:
        tried = f"layout of {self.program}: {self.layouts_priced} tried in {self.seconds:,.0f} s"
        now = f"; now with {self.variant}" if self.variant else ""
        if self.best is None:
            return f"{tried}, none fits so far{now}"
        mesh, layout, *others = self.best.choice.bindings().values()
        rules = ", ".join([mesh or "", layout or "nothing is split", *(rules for rules in others if rules)])
        return f"{tried}, the best so far takes {seconds_text(self.best.seconds)}: {rules}{now}"


@dataclasses.dataclass(frozen=True, slots=True)
class SearchEnd:
    """The end of a search, with its reason. `print` it.

    Attributes:
      reason: why it ended. "all": all layouts with rules for the whole program were planned. "no improvement": no
        change that a search tries makes the best layout faster. "planned operations" or "seconds": it reached this
        limit.
      limit: the limit that it reached, or 0.
      after_best: how many layouts were planned after the best.
      seconds: the seconds that it took.

    Examples:
      >>> print(mtf.SearchEnd("planned operations", limit=1000, after_best=7, seconds=2.5))
      the search ended after 2.5 s: it reached its limit of 1,000 planned operations, 7 layouts after the best; \
--search_operations=4000 (max_planned_operations of auto_layout) lets it continue
    """

    reason: Reason
    limit: float = 0
    after_best: int = 0
    seconds: float = dataclasses.field(default=0.0, compare=False)

    @property
    def is_limit(self) -> bool:
        """Whether a limit ended the search."""
        return self.reason in _MORE

    def __str__(self) -> str:
        return f"the search ended after {seconds_text(self.seconds)}: {self._why()}"

    def _why(self) -> str:
        if self.reason == "all":
            return "every layout with rules for the whole program was planned"
        if self.reason == "no improvement":
            return _NO_IMPROVEMENT.format(count=self.after_best)
        more = _MORE[self.reason].format(_MUCH_MORE * self.limit)
        limit = f"{self.limit:,.0f}" if self.reason == "planned operations" else f"{self.limit:g}"
        return _LIMIT.format(limit=f"{limit} {self.reason}", count=self.after_best, more=more)


class Watch:
    """Watches a search while layouts are priced.

    Args:
      program: the name of the program.
      memory: bytes that a core has.
      told: a function that is called after each layout, or None.
    """

    def __init__(self, program: str, memory: float, told: Callable[[SearchProgress], None] | None) -> None:
        self._program, self._memory, self._told = program, memory, told
        self._best: PricedLayout | None = None
        self._count_at_best = 0

    def saw(self, pricing: Pricing, priced: PricedLayout | None) -> None:
        """Notes that a layout was priced, or that the program cannot have it."""
        fits = priced is not None and priced.peak_bytes <= self._memory
        if priced is not None and fits and (self._best is None or priced.seconds < self._best.seconds):
            self._best, self._count_at_best = priced, pricing.count
        if self._told is not None:
            self._told(SearchProgress(self._program, pricing.count, pricing.seconds, self._best))

    def end(self, pricing: Pricing, limits: Limits, *, was_cut_short: bool, is_all: bool) -> SearchEnd:
        """Returns how the search ended."""
        after_best = pricing.count - self._count_at_best
        if not was_cut_short:
            return SearchEnd("all" if is_all else "no improvement", 0, after_best, pricing.seconds)
        if limits.is_over_in_operations(pricing):
            return SearchEnd("planned operations", limits.planned_operations, after_best, pricing.seconds)
        return SearchEnd("seconds", limits.seconds or 0.0, after_best, pricing.seconds)
