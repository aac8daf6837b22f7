"""A run's records: its metrics as lines of JSON, and a digest of its variables."""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from meshtf.files.regular_file import read_regular
from meshtf.files.replaced_file import replace_file
from meshtf.files.unlinked_file import append_to_file
from meshtf_programs.strict_json import json_text, with_numbers

HELD_OUT = "held_out_"
"""The prefix of a metric that was measured on held-out examples."""

TIME = "time"
"""The time at which a line was written: UTC, by ISO 8601, as "2026-11-26T16:12:43.120Z"."""

OWN_NAMES = ("step", TIME)
"""The fields that every line has besides its metrics. No metric can have these names."""

LARGEST_FILE = 1 << 30
"""The largest file of metrics that is read, in bytes."""

DIGEST = "variables_sha256"
"""A hash of all variables, at the end of a run."""

LONGEST_ROW = 64
"""The longest row of a vector that is written, in numbers."""

Value = TypeVar("Value")

Vectors: TypeAlias = "Mapping[str, np.ndarray]"
"""Vectors by name, [n] or [layers, n]: a number for each of n things, such as the load of each expert."""

_NO_LINE = """\
line %d of %s is ignored, and will be dropped when the run continues: it is not a JSON object with a step and \
numeric losses"""

_LOG = logging.getLogger(__name__)


class MetricsLog:
    """A file of one JSON object a line, each with its "time" and its "step", in order of steps.

    A number that is not finite is the text "NaN", "Infinity" or "-Infinity" in the file, and a number again when it is
    read.

    Args:
      path: the path of the file, which is made if it is missing.
      last_step: the last step to keep. An interrupted run leaves lines of later steps than its checkpoint, and a last
        line cut short. They are removed, so that no step appears twice.

    Raises:
      OSError: if it cannot be read or written, or is no regular file.
    """

    def __init__(self, path: Path, last_step: int = 0) -> None:
        self._path = path
        self._lines = [line for line in read_metrics(path) if line["step"] <= last_step]
        replace_file(path, "".join(map(_text, self._lines)).encode())

    @property
    def lines(self) -> list[dict[str, Any]]:
        """All lines that were written, including those of earlier runs."""
        return list(self._lines)

    def has_evaluation(self, step: int) -> bool:
        """Tells whether the metrics on held-out examples after this step are there."""
        return any(line["step"] == step and f"{HELD_OUT}loss" in line for line in self._lines)

    def has_digest(self, step: int) -> bool:
        """Tells whether the hash of the variables after this step is there."""
        return any(line["step"] == step and DIGEST in line for line in self._lines)

    def write(self, step: int, values: Mapping[str, float | str], vectors: Vectors | None = None) -> None:
        """Adds a line of values, and of the vectors that are short."""
        line = {"step": step, TIME: time_now(), **values, **as_lists(vectors or {})}
        append_to_file(self._path, _text(line).encode())
        self._lines.append(line)


def time_now() -> str:
    """Returns the time in UTC, in the form of the lines."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Returns the lines of a metrics file, without a last line that was cut short. A missing file has none.

    A warning in the log `meshtf.train.monitoring.metrics` names any other line that cannot be read.

    Raises:
      OSError: if it cannot be read, or is no regular file.
    """
    return list(_whole_lines(path)) if path.exists() else []


def curve_of(lines: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    """Returns the steps for which a metric was written as a number, and its values."""
    points = [(line["step"], line[name]) for line in lines if isinstance(line.get(name), int | float)]
    return [step for step, _ in points], [float(value) for _, value in points]


def held_out_names(values: Mapping[str, Value]) -> dict[str, Value]:
    """Returns means over held-out examples, under names that distinguish them from those of training batches."""
    return {f"{HELD_OUT}{name}": value for name, value in values.items()}


def as_lists(vectors: Vectors) -> dict[str, list[Any]]:
    """Returns vectors as lists for JSON, to six digits, without those longer than LONGEST_ROW."""
    short = {name: x for name, x in vectors.items() if x.shape[-1] <= LONGEST_ROW}
    return {name: np.vectorize(lambda number: float(f"{number:.6g}"))(x).tolist() for name, x in short.items()}


def digest_of(variables: Mapping[str, Any]) -> str:
    """Returns a hash of every variable's name, type, shape and bits. It is equal for two runs that ended in the same
    bits.

    It reads one whole variable at a time, so the largest variable must fit on the host.
    """
    total = hashlib.sha256()
    for name in sorted(variables):
        value = np.ascontiguousarray(variables[name])
        total.update(f"{name} {value.dtype} {value.shape} ".encode())
        total.update(value.tobytes())
    return total.hexdigest()


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    *whole, rest = read_regular(path, LARGEST_FILE).split(b"\n")
    for number, line in enumerate(whole, start=1):
        if (values := _values(line)) is not None:
            yield values
        else:
            _LOG.warning(_NO_LINE, number, path)
    if rest and (values := _values(rest)) is not None:
        yield values


def _values(line: bytes) -> dict[str, Any] | None:
    """Returns the values of a line, or None if it is no line of metrics."""
    try:
        values = with_numbers(json.loads(line))
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict) or not _is_number(values.get("step"), int) or values["step"] < 0:
        return None
    losses = [values[name] for name in ("loss", f"{HELD_OUT}loss") if name in values]
    return values if all(_is_number(loss, int | float) for loss in losses) else None


def _is_number(value: object, kind: Any) -> bool:
    """Tells whether it is a number that fits into 64 bits."""
    is_whole = isinstance(value, int)
    return isinstance(value, kind) and not isinstance(value, bool) and not (is_whole and abs(value) >= 2**63)


def _text(line: Mapping[str, Any]) -> str:
    return json_text(line) + "\n"
