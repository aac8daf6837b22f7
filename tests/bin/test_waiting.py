"""Lines that say that something takes its time."""

from __future__ import annotations

import io

from rich.console import Console

from meshtf.bin._waiting import waiting


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
