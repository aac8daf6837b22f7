"""Draws the loss by step as a picture."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshtf.train.monitoring.curve_scale import CurveScale
from meshtf.train.monitoring.metrics import HELD_OUT, curve_of
from meshtf.train.monitoring.picture import save_picture, shown_text
from meshtf.train.training import LOSS

MISSING_MATPLOTLIB = "no loss curve is drawn: it needs matplotlib (pip install 'meshtf[plots]')"

FEW = 40
"""Curves of at most this many points are not smoothed."""

_TRAIN, _HELD_OUT = "#4c78a8", "#d1495b"

_WIDTH, _HEIGHT = 7.0, 4.0
_LOSSES, _RIGHT, _TITLE, _STEPS, _LINE = 0.9, 0.15, 0.35, 0.55, 0.17
"""The size of the picture in inches. Then the room for texts around its axes: left, right, above, below, and for each
further line below. matplotlib's own layout would draw all texts twice to measure them.
"""

_GREATEST_SHARE = 0.05
"""The share of a run's time that drawing may take."""


class LossCurve:
    """The picture of a run, which each evaluation may draw again.

    Drawing takes a tenth of a second. After an evaluation that follows too soon, the picture stays as it is.
    """

    def __init__(self, title: str, path: Path) -> None:
        self._title = title
        self._path = path
        self._next = 0.0

    def draw(self, lines: Sequence[Mapping[str, Any]], *, is_last: bool) -> str | None:
        """Draws the losses, always if they are the last ones. See `draw_loss_curve`."""
        start = time.monotonic()
        if start < self._next and not is_last:
            return None
        problem = draw_loss_curve(lines, self._title, self._path)
        end = time.monotonic()
        self._next = end + (end - start) / _GREATEST_SHARE
        return problem


def draw_loss_curve(lines: Sequence[Mapping[str, Any]], title: str, path: Path) -> str | None:
    """Draws the losses in lines of metrics, on the training batches and on held-out examples, into a PNG.

    The batches' losses are drawn faintly, and once more smoothed. A text below names the values that the scale leaves
    out. If matplotlib is not installed, it returns a sentence that says so.
    """
    try:
        from matplotlib.figure import Figure  # an optional dependency
    except ImportError:
        return MISSING_MATPLOTLIB
    figure = Figure(figsize=(_WIDTH, _HEIGHT), dpi=120)
    axes = figure.add_subplot()
    training, held_out = curve_of(lines, LOSS), curve_of(lines, f"{HELD_OUT}{LOSS}")
    scale = CurveScale.of([training, held_out])
    steps, losses = training
    if steps:
        is_smoothed = len(losses) > FEW
        axes.plot(steps, losses, color=_TRAIN, linewidth=1.2, alpha=0.35 if is_smoothed else 1, label="training batch")
        if is_smoothed:
            axes.plot(
                steps, smoothed(scale.without_spikes(losses)), color=_TRAIN, linewidth=1.8, label="training, smoothed"
            )
    if held_out[0]:
        axes.plot(*held_out, color=_HELD_OUT, marker="o", markersize=4, linewidth=1.2, label="held out")
    scale.apply(axes)
    axes.set_ylabel(LOSS)
    axes.set_title(shown_text(title))
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(frameon=False)
    below = _STEPS + _LINE * axes.get_xlabel().count("\n")
    figure.subplots_adjust(_LOSSES / _WIDTH, below / _HEIGHT, 1 - _RIGHT / _WIDTH, 1 - _TITLE / _HEIGHT)
    save_picture(figure, path)
    return None


def smoothed(values: Sequence[float]) -> list[float]:
    """Returns each value's mean with its neighbours on both sides, so that the curve does not lag.

    Weights fall exponentially with the distance, and reach about a twentieth of all values. Few values stay as they
    are. A value that is not finite stays, and is in no mean of others.
    """
    decay = 1.0 - min(1.0, FEW / max(len(values), 1))
    before, after = _decaying_sums(values, decay), _decaying_sums(values[::-1], decay)[::-1]
    # A value itself, of weight 1, is in both sums.
    return [
        (t + u - x) / (w + v - 1.0) if math.isfinite(x) else x
        for x, (t, w), (u, v) in zip(values, before, after, strict=True)
    ]


def _decaying_sums(values: Sequence[float], decay: float) -> list[tuple[float, float]]:
    """Returns two sums for each value: of it and the values before it, and of their weights.

    The weight of a value is `decay` times the weight of the next one.
    """
    total, weight, sums = 0.0, 0.0, []
    for value in values:
        is_finite = math.isfinite(value)
        total, weight = decay * total + (value if is_finite else 0.0), decay * weight + is_finite
        sums.append((total, weight))
    return sums
