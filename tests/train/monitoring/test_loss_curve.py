"""The picture of a run's losses: how often it is drawn, and that it has room for its texts."""

from __future__ import annotations

import builtins
import errno
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from meshtf.train.monitoring.loss_curve import MISSING_MATPLOTLIB, LossCurve, draw_loss_curve

STEPS = range(1, 101)


def lines(loss_at: Callable[[int], float]) -> list[dict[str, float]]:
    return [{"step": step, "loss": loss_at(step)} for step in STEPS]


def test_evaluations_that_follow_at_once_leave_the_picture_and_the_last_one_draws_it(tmp_path: Path) -> None:
    path = tmp_path / "loss.png"
    curve = LossCurve("run", path)
    every = lines(lambda step: 2 / step)
    curve.draw(every[:1], is_last=False)
    first = path.read_bytes()
    curve.draw(every, is_last=False)
    assert path.read_bytes() == first
    curve.draw(every, is_last=True)
    draw_loss_curve(every, "run", tmp_path / "expected.png")
    assert path.read_bytes() == (tmp_path / "expected.png").read_bytes() != first


@pytest.mark.parametrize(
    "loss_at",
    [
        lambda step: -0.00012 - step / 1e7,
        lambda step: 2000 * math.exp(-step / 9),
        lambda step: {50: 123456.7, 60: -123456.7, 70: math.nan}.get(step, 2 + math.sin(step) / 10),
    ],
    ids=["long numbers", "logarithmic", "two lines below"],
)
def test_no_text_is_cut(loss_at: Callable[[int], float], tmp_path: Path) -> None:
    """Nothing but white is at the borders. The title is no formula."""
    draw_loss_curve(lines(loss_at), "runs/$a_{$", tmp_path / "loss.png")
    pixels = np.asarray(Image.open(tmp_path / "loss.png").convert("L"))
    assert pixels.min() < 255
    assert {pixels[:2].min(), pixels[-2:].min(), pixels[:, :2].min(), pixels[:, -2:].min()} == {255}


def test_it_is_written_whole_and_through_no_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at the second time. Its title has letters that the font lacks."""
    path, other = tmp_path / "loss.png", tmp_path / "other"
    other.write_text("mine")
    path.symlink_to(other)
    draw_loss_curve([], "runs/\u65e5", path)
    first = path.read_bytes()
    assert (other.read_text(), first[:4]) == ("mine", b"\x89PNG")

    def write_some(_: Figure, file: Any, **options: Any) -> None:
        file.write(b"\x89PNG")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Figure, "savefig", write_some)
    with pytest.raises(OSError, match=r"No space left on device.*loss\.png"):
        draw_loss_curve([], "run", path)
    assert path.read_bytes() == first


def test_it_needs_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_matplotlib(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    assert draw_loss_curve([], "run", tmp_path / "loss.png") == MISSING_MATPLOTLIB
    assert not (tmp_path / "loss.png").exists()
