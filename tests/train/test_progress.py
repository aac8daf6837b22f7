from __future__ import annotations

import io

import pytest
from rich.console import Console

from meshtf.train.progress import Speedometer, StepReport, progress_display


def show_all(num_steps: int, console: Console) -> None:
    with progress_display(num_steps, console) as display:
        for step in range(1, num_steps + 1):
            display.show(StepReport(step, loss=1 / step, examples_per_second=1234.5))


def test_lines_where_stdout_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_all(200, Console(file=io.StringIO(), force_terminal=False))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "step   1/200  loss 1.0000  1,234 examples/s"
    assert lines[-1] == "step 200/200  loss 0.0050  1,234 examples/s"
    assert len(lines) == 11


def test_bar_on_a_terminal() -> None:
    drawn = io.StringIO()
    show_all(3, Console(file=drawn, force_terminal=True, width=120))
    assert "3/3" in drawn.getvalue()
    assert "loss 0.3333  1,234 examples/s" in drawn.getvalue()


def test_speed_leaves_out_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 10.0, 11.0, 12.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    speedometer = Speedometer(batch_size=64)
    assert [speedometer.count_step() for _ in range(3)] == [6.4, 64.0, 64.0]
