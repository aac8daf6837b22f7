"""The loss by step as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from meshtf.train.monitoring.metrics import HELD_OUT

MISSING_MATPLOTLIB = "no loss curve is drawn: it needs matplotlib (pip install 'meshtf[plots]')"

_TRAIN, _HELD_OUT = "#4c78a8", "#d1495b"


def draw_loss_curve(lines: Sequence[Mapping[str, Any]], title: str, path: Path) -> str | None:
    """Draws the losses that lines of metrics hold, on the training batches and on held-out examples, into a PNG.

    Returns why there is none, where matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # an optional dependency
    except ImportError:
        return MISSING_MATPLOTLIB
    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for name, label, color, marker in (("loss", "training batch", _TRAIN, ""), _held_out_curve()):
        points = [(line["step"], line[name]) for line in lines if name in line]
        if points:
            axes.plot(*zip(*points, strict=True), label=label, color=color, marker=marker, linewidth=1.2)
    axes.set_xlabel("step")
    axes.set_ylabel("loss")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(frameon=False)
    figure.savefig(path, metadata={"Software": None})
    return None


def _held_out_curve() -> tuple[str, str, str, str]:
    return f"{HELD_OUT}loss", "held out", _HELD_OUT, "o"
