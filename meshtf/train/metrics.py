"""What a run leaves behind: its metrics as JSON lines, and a digest of its variables."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TextIO

import numpy as np

import meshtf as mtf

METRICS_FILE = "metrics.jsonl"


class MetricsLog:
    """Writes one JSON object a line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, step: int, values: Mapping[str, float | str]) -> None:
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()


@contextlib.contextmanager
def metrics_log(folder: Path) -> Iterator[MetricsLog]:
    """A new log in `folder`."""
    with (folder / METRICS_FILE).open("w") as file:
        yield MetricsLog(file)


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
