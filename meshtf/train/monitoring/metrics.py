"""What a run writes down: its metrics as JSON lines, and a digest of its variables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import meshtf as mtf

HELD_OUT = "held_out_"
"""Before the name of a metric that was measured on held-out examples."""

LONGEST_ROW = 64
"""Of a vector, how many numbers are written down one by one."""

Vectors: TypeAlias = "Mapping[str, np.ndarray]"
"""By name, [n] or [layers, n]: a number for each of n things, such as the load of each expert."""


class MetricsLog:
    """A file of one JSON object a line, each with the "step" to which it belongs, in order of steps.

    Args:
      path: of the file, made where it is not there.
      last_step: lines of later steps, and a last line cut short, are what an interrupted run left behind a checkpoint.
        They are taken away, so that no step stands twice.

    Raises:
      OSError: it cannot be written.
    """

    def __init__(self, path: Path, last_step: int = 0) -> None:
        self._path = path
        self._lines = [line for line in read_metrics(path) if line["step"] <= last_step]
        temporary = path.with_name(f".{path.name}")
        temporary.write_text("".join(map(_text, self._lines)))
        temporary.replace(path)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """All that was written, by earlier runs too."""
        return list(self._lines)

    def has_evaluation(self, step: int) -> bool:
        """Whether the metrics on held-out examples after this step are there."""
        return any(line["step"] == step and f"{HELD_OUT}loss" in line for line in self._lines)

    def write(self, step: int, values: Mapping[str, float | str], vectors: Vectors | None = None) -> None:
        """Adds a line of values, and of those vectors that are short."""
        line = {"step": step, **values, **as_lists(vectors or {})}
        with self._path.open("a") as file:
            file.write(_text(line))
        self._lines.append(line)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics file, without one that was cut short; none where there is no file."""
    return list(_whole_lines(path.read_text())) if path.exists() else []


def as_lists(vectors: Vectors) -> dict[str, list[Any]]:
    """Fit for JSON, without those longer than LONGEST_ROW, to six digits."""
    short = {name: x for name, x in vectors.items() if x.shape[-1] <= LONGEST_ROW}
    return {name: np.vectorize(lambda number: float(f"{number:.6g}"))(x).tolist() for name, x in short.items()}


def digest_of(variables: mtf.VariableStore) -> str:
    """A hash of every variable's name, type, shape and bits: equal for two runs that ended in the same bits.

    Reads one whole variable at a time, so it is for models whose largest variable fits on the host.
    """
    total = hashlib.sha256()
    for name in sorted(variables):
        value = np.ascontiguousarray(variables[name])
        total.update(f"{name} {value.dtype} {value.shape} ".encode())
        total.update(value.tobytes())
    return total.hexdigest()


def _whole_lines(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            continue
        if isinstance(values, dict) and isinstance(values.get("step"), int):
            yield values


def _text(line: Mapping[str, Any]) -> str:
    return json.dumps(line) + "\n"
