"""The layout searches for one training: several programs one after the other, shown as one search."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from meshtf.errors import UsageError
from meshtf.layout_search import LayoutChoice, PricedLayout, SearchProgress
from meshtf.lowering.report.text_table import seconds_text

_OVER = """\
the search for a layout reached its limit of {seconds:g} s before it had tried every way to train: give it more \
time with --search_seconds"""
_LEAST_SECONDS = 1e-3


@dataclasses.dataclass(frozen=True)
class SearchEffort:
    """The limits of the searches for a training, and the function that receives their progress.

    Attributes:
      max_planned_operations: the most operations that are planned for each program. None: as many as `auto_layout`
        plans.
      max_seconds: the most seconds for all programs together. None: no limit.
      progress: a function that is called after each planned layout.
    """

    max_planned_operations: int | None = None
    max_seconds: float | None = None
    progress: Callable[[SearchProgress], None] | None = None


class AllSearches:
    """Searches in one program after another.

    Args:
      search: a function that finds a layout for a program, a mesh and a machine.
      effort: the limits for all searches together.
    """

    def __init__(self, search: Callable[..., LayoutChoice], effort: SearchEffort) -> None:
        self._search, self._effort = search, effort
        self._began = time.monotonic()
        self._programs = 0
        self._layouts_before = 0
        self._layouts = 0
        self._best: PricedLayout | None = None

    def found(self, variant: str, limit: int | None, *program: Any, **options: Any) -> LayoutChoice:
        """Returns the layout that a search finds.

        Args:
          variant: how the program differs from the configured one. Empty for the configured one.
          limit: the most planned operations. The limit of `effort` also applies.
          program, options: the arguments of the search.
        """
        self._programs += 1
        self._layouts_before += self._layouts
        self._layouts = 0
        limits = [n for n in (limit, self._effort.max_planned_operations) if n is not None]
        more = {"max_planned_operations": min(limits)} if limits else {}
        return self._search(
            *program, **options, **more, **self._time_left(), progress=lambda progress: self._tell(variant, progress)
        )

    def check_time(self) -> None:
        """Raises UsageError if the time for all searches is over."""
        if self._is_over:
            raise UsageError(_OVER.format(seconds=self._effort.max_seconds))

    def ended(self, choice: LayoutChoice) -> LayoutChoice:
        """Returns the final choice. Its field `end` describes all searches, not only the one that found it."""
        end = dataclasses.replace(choice.end, seconds=self._seconds)
        if self._is_over and end.is_limit:
            end = dataclasses.replace(end, reason="seconds", limit=self._effort.max_seconds)
        return dataclasses.replace(choice, end=end)

    def __str__(self) -> str:
        """Returns one line on all searches, and an empty text if there was only one program."""
        if self._programs < 2:
            return ""
        layouts = self._layouts_before + self._layouts
        return f"searched in {self._programs} programs: {layouts} layouts in {seconds_text(self._seconds)}"

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    @property
    def _is_over(self) -> bool:
        return self._effort.max_seconds is not None and self._seconds >= self._effort.max_seconds

    def _time_left(self) -> dict[str, float]:
        limit = self._effort.max_seconds
        return {} if limit is None else {"max_seconds": max(limit - self._seconds, _LEAST_SECONDS)}

    def _tell(self, variant: str, progress: SearchProgress) -> None:
        self._layouts = progress.layouts_priced
        best = progress.best
        if best is not None and (self._best is None or best.seconds < self._best.seconds):
            self._best = best
        if self._effort.progress is not None:
            layouts = self._layouts_before + self._layouts
            self._effort.progress(SearchProgress(progress.program, layouts, self._seconds, self._best, variant))
