"""Lines that say that something takes its time."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from meshtf.bin.shared import waiting as _waiting
from meshtf.bin.shared.waiting import news, waiting


def test_a_line_in_half_a_minute_where_there_is_no_terminal() -> None:
    console = Console(file=io.StringIO(), width=100)
    with waiting("compiling", console) as on_wait:
        for tenths in range(950):
            on_wait(tenths / 10)
    assert console.file.getvalue().splitlines() == [f"compiling, {n} s" for n in (30, 60, 90)]  # type: ignore[attr-defined]


def test_a_count_on_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with waiting("compiling", console) as on_wait:
        on_wait(12.0)
    assert "compiling" in console.file.getvalue()  # type: ignore[attr-defined]


def test_news_are_a_line_in_ten_seconds_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    console, now = Console(file=io.StringIO(), width=30), [0.0]
    monkeypatch.setattr(_waiting.time, "monotonic", lambda: now[0])
    with news("searching", console) as tell:
        for second in range(35):
            now[0] = float(second)
            tell(f"after {second} s, the best is [batch]:rows of a long layout")
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines == [f"after {n} s, the best is [batch]:rows of a long layout" for n in (10, 20, 30)]


def test_news_are_one_line_of_a_terminal() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=40)
    with news("searching", console) as tell:
        tell("a [batch]:rows so long that it would take up the line after this one, too")
    drawn = console.file.getvalue()  # type: ignore[attr-defined]
    assert "a [batch]:rows so long" in drawn
    assert "line after" not in drawn
