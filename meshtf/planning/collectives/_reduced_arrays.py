"""Reductions of the interpreter, term by term in the order of the cores."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from meshtf.planning.reductions import Reduction

_COMBINE: dict[Reduction, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": lambda a, b: np.logical_or(a, b) if a.dtype == bool else a + b,
    "multiply": lambda a, b: np.logical_and(a, b) if a.dtype == bool else a * b,
    "max": np.maximum,
    "min": np.minimum,
}


def reduced(group: Sequence[np.ndarray], reduction: Reduction) -> np.ndarray:
    """The slices of a group of cores as one."""
    return functools.reduce(_COMBINE[reduction], group).astype(group[0].dtype)
