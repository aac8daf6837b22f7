from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console

from meshtf.train.monitoring.progress import ProgressLines, Speed, Speedometer, StepReport, duration, progress_display

SPEED = Speed(seconds_per_step=0.5, per_second=1234.5, unit="tokens", share_of_peak=0.314)


def show_all(num_steps: int, console: Console, first_step: int = 0) -> None:
    with progress_display(num_steps, first_step, console) as display:
        for step in range(first_step + 1, num_steps + 1):
            is_logged = step % 20 == 0 or step == 1
            display.show(StepReport(step, loss=1 / step, speed=SPEED, is_logged=is_logged))


def test_lines_where_stdout_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_all(200, Console(file=io.StringIO(), force_terminal=False))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "step   1/200  loss 1.0000  1,234 tokens/s  31.4% of peak  100 s left"
    assert lines[1] == "step  20/200  loss 0.0500  1,234 tokens/s  31.4% of peak  90 s left"
    assert lines[-1] == "step 200/200  loss 0.0050  1,234 tokens/s  31.4% of peak"
    assert len(lines) == 11


def test_lines_of_a_resumed_run_begin_where_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    show_all(200, Console(file=io.StringIO(), force_terminal=False), first_step=133)
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()][:2] == ["140/200", "160/200"]


def test_scalars_of_the_model_stand_behind_the_loss_without_their_scopes() -> None:
    report = StepReport(3, 1.0, SPEED, {"mixture_of_experts/dropped": 0.01234, "encoder/experts/balance": 1.5})
    assert str(report) == "loss 1.0000  dropped 0.0123  balance 1.5  1,234 tokens/s  31.4% of peak"


def test_vectors_are_shown_from_the_least_to_the_most() -> None:
    report = StepReport(3, 1.0, SPEED, {"experts/dropped": 0.5}, {"experts/load": np.array([[0.125, 0.5], [0.3, 0.0]])})
    assert str(report) == "loss 1.0000  dropped 0.5  load 0..0.5  1,234 tokens/s  31.4% of peak"


def test_slow_steps_are_shown_once_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    now = iter(float(seconds) for seconds in range(0, 500, 25))
    lines = ProgressLines(1000, print, clock=lambda: next(now))
    for step in range(1, 8):
        lines.show(StepReport(step, 1.0, SPEED, is_logged=step == 1))
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["1/1000", "4/1000", "7/1000"]


def test_on_a_terminal_lines_stay_above_the_bar() -> None:
    drawn = io.StringIO()
    show_all(40, Console(file=drawn, force_terminal=True, width=60), first_step=1)
    assert "40/40" in drawn.getvalue()
    for line in ("step 20/40  loss 0.0500  1,234 tokens/s  31.4% of peak  10 s left\n", "step 40/40  loss 0.0250  "):
        assert line in drawn.getvalue()  # whole, though it is longer than the terminal is wide


@pytest.mark.parametrize("width", [20, 40])
def test_a_bar_fits_a_narrow_terminal_and_no_color_is_heeded(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    drawn = io.StringIO()
    show_all(3, Console(file=drawn, force_terminal=True, width=width))
    assert "3/3" in drawn.getvalue()
    assert not re.search(r"\x1b\[[\d;]*3[0-7]m", drawn.getvalue())


def test_speed_leaves_out_the_first_step_and_what_is_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 10.0, 11.0, 12.0, 100.0, 103.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    speedometer = Speedometer(64, "examples", flops_of_peak=0.5)
    speeds = []
    for _ in range(3):
        with speedometer.step():
            pass
        speeds.append(speedometer.speed)
    assert str(speeds[0]) == "compiled in 10 s"
    assert [speed.per_second for speed in speeds[1:]] == [64.0, 32.0]
    assert [speed.share_of_peak for speed in speeds[1:]] == [0.5, 0.25]
    assert str(speeds[1]) == "64 examples/s  50.0% of peak"


def test_durations_are_short() -> None:
    assert [duration(s) for s in (0.4, 45, 720, 12600)] == ["0 s", "45 s", "12 min", "3.5 h"]
