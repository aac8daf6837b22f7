"""The summary is short and without colour in files; a table has a column for each layout."""

from __future__ import annotations

import dataclasses
import io
import math
import sys

import pytest

from meshtf.plan_view.planned_layout import PlannedLayout
from meshtf.plan_view.terminal import print_comparison, print_summary


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_summary_says_what_matters_in_thirty_lines(
    layouts: list[PlannedLayout], capsys: pytest.CaptureFixture[str]
) -> None:
    print_summary(layouts[0])
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 30
    assert max(map(len, text.splitlines())) <= 120
    assert "\x1b" not in text
    for part in ("predicted on v5e", "peak memory", " of 16.0 GiB", "where the time goes", "what is sent", "over rows"):
        assert part in text
    assert layouts[0].prediction is not None
    unlimited = dataclasses.replace(layouts[0].prediction, memory_bytes=math.inf)
    print_summary(dataclasses.replace(layouts[0], prediction=unlimited))
    assert " a core of inf B" in capsys.readouterr().out
    print_summary(dataclasses.replace(layouts[0], prediction=None, machine=None))
    text = capsys.readouterr().out
    assert "predicted" not in text
    assert "where the work is" in text


def test_a_terminal_has_colour_unless_told_not_to(
    layouts: list[PlannedLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TERM": "xterm-256color", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured, plain = _Terminal(), _Terminal()
    monkeypatch.setattr(sys, "stdout", coloured)
    print_summary(layouts[0])
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys, "stdout", plain)
    print_summary(layouts[0])
    assert "\x1b[34m" in coloured.getvalue()
    assert "\x1b[3" not in plain.getvalue()
    assert max(map(len, plain.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines())) <= 120


def test_several_layouts_are_one_table(layouts: list[PlannedLayout], capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(layouts)
    rows = {line.split("│")[0].strip(): line.split("│")[1:] for line in capsys.readouterr().out.splitlines()}
    assert len(rows["peak memory"]) == 4
    assert rows["peak memory"][2].strip() == "not possible"
    assert rows["batch size"][3].strip() == "32"
    assert rows["over rows"][3].strip() != "-"
