"""A search tells of each layout that it has planned, and what ended it."""

from __future__ import annotations

import pytest

from meshtf.layout_search import SearchEnd, SearchProgress, _search, auto_layout
from tests.layout_search.programs import perceptron

MESH = "rows:2;cols:2"


def test_each_layout_is_told_with_the_best_so_far() -> None:
    told: list[SearchProgress] = []
    found = auto_layout(perceptron(), MESH, "v5e", keep="batch:rows", progress=told.append)
    assert [progress.layouts_priced for progress in told] == list(range(1, found.layouts_priced + 1))
    assert told[-1].best == found.best
    seconds = [progress.best.seconds for progress in told if progress.best is not None]
    assert seconds == sorted(seconds, reverse=True)
    assert [progress.seconds for progress in told] == sorted(progress.seconds for progress in told)
    first_with_it = next(n for n, progress in enumerate(told) if progress.best == found.best)
    assert found.end == SearchEnd("all", 0, len(told) - 1 - first_with_it)
    layout = str(found.layout.layout) or "nothing is split"
    assert f"{len(told)} tried in " in str(told[-1])
    assert f": rows:2;cols:2, {layout}" in str(told[-1])
    assert "every layout with rules for the whole program was planned" in str(found)


def test_while_nothing_fits_it_says_so_and_in_which_way_another_program_is_tried() -> None:
    text = str(SearchProgress("train_step", 1234, 61.5, None, "num_microbatches = 2"))
    assert text == "layout of train_step: 1234 tried in 62 s, none fits so far; now with num_microbatches = 2"


def test_what_ended_the_search_is_named_with_what_gives_it_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_search, "_OPERATIONS_OF_ALL", 0)
    found = auto_layout(perceptron(), MESH, "v5e", keep="batch:rows")
    assert (found.end.reason, found.end.limit, found.was_cut_short) == ("no improvement", 0, False)
    assert f"and the {found.end.after_best} layouts planned after it were slower or did not fit" in str(found)
    found = auto_layout(perceptron(), MESH, "v5e", keep="batch:rows", max_planned_operations=200)
    assert (found.end.reason, found.end.limit, found.was_cut_short) == ("planned operations", 200, True)
    slow = SearchEnd("seconds", 60, 5, 60.4)
    assert str(slow) == (
        "the search ended after 60.4 s: it reached its limit of 60 seconds, 5 layouts after the best; "
        "--search_seconds=240 (max_seconds of auto_layout) lets it continue"
    )


def test_a_limit_of_time_is_told_from_one_of_operations() -> None:
    """The second is over when the first layout was told."""

    def wait(progress: SearchProgress) -> None:
        while progress.layouts_priced == 3 and (now := clock.now) < 1:
            clock.now = now + 1

    clock = _Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("meshtf.layout_search._pricing.time.monotonic", lambda: clock.now)
        found = auto_layout(perceptron(), MESH, "v5e", max_seconds=0.5, progress=wait)
    assert found.end.reason == "seconds"
    assert found.layouts_priced == 3


class _Clock:
    now = 0.0
