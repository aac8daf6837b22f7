"""Searches in several programs are one to who waits: their layouts, the best of all, the time of all."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import meshtf as mtf
from meshtf.errors import UsageError
from meshtf.layout_search import LayoutChoice, MeshLayout, PricedLayout, SearchEnd, SearchProgress
from meshtf.train.layouts import all_searches
from meshtf.train.layouts.all_searches import AllSearches, SearchEffort


@dataclasses.dataclass
class _Searching:
    """Stands in for the search: prices so many layouts, of which the last is the best, in a second each."""

    layouts: int
    now: float = 0.0
    asked: list[dict[str, Any]] = dataclasses.field(default_factory=list)

    def __call__(self, seconds: float, *, progress: Any, **options: Any) -> LayoutChoice:
        self.asked.append(options)
        layout = MeshLayout(mtf.convert_to_shape("rows:2"), mtf.convert_to_layout_rules("batch:rows"))
        best = PricedLayout(layout, seconds, 1, (("products", seconds),))
        for count in range(1, self.layouts + 1):
            self.now += 1
            progress(SearchProgress("train_step", count, count, best if count == self.layouts else None))
        end = SearchEnd("planned operations", 50)
        return LayoutChoice("train_step", "v5e", best, (), 1.0, self.layouts, seconds, 0.0, False, end)


@pytest.fixture
def search(monkeypatch: pytest.MonkeyPatch) -> _Searching:
    search = _Searching(3)
    monkeypatch.setattr(all_searches.time, "monotonic", lambda: search.now)
    return search


def test_layouts_and_times_of_all_programs_are_told_with_the_best_of_all(search: _Searching) -> None:
    told: list[SearchProgress] = []
    searches = AllSearches(search, SearchEffort(progress=told.append))
    searches.found("", 100, 2.0)
    assert str(searches) == ""
    searches.found("num_microbatches = 2", None, 3.0)
    assert [progress.layouts_priced for progress in told] == [1, 2, 3, 4, 5, 6]
    assert [progress.seconds for progress in told] == [1, 2, 3, 4, 5, 6]
    assert [progress.variant for progress in told[2:4]] == ["", "num_microbatches = 2"]
    assert [progress.best and progress.best.seconds for progress in told] == [None, None, 2, 2, 2, 2]
    assert str(searches) == "searched in 2 programs: 6 layouts in 6 s"
    assert search.asked == [{"max_planned_operations": 100}, {}]


def test_limits_are_those_of_all_searches(search: _Searching) -> None:
    searches = AllSearches(search, SearchEffort(max_planned_operations=70, max_seconds=5.0))
    first = searches.found("", 100, 2.0)
    assert searches.ended(first).end == SearchEnd("planned operations", 50)
    searches.check_time()
    last = searches.found("", 60, 2.0)
    assert search.asked == [
        {"max_planned_operations": 70, "max_seconds": 5.0},
        {"max_planned_operations": 60, "max_seconds": 2.0},
    ]
    assert searches.ended(last).end == SearchEnd("seconds", 5.0)
    assert searches.ended(last).end.seconds == 6.0
    with pytest.raises(UsageError, match=r"its limit of 5 s before it had tried every way .*--search_seconds"):
        searches.check_time()
