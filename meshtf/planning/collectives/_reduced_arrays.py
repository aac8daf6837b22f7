"""Reductions of the interpreter, term by term in the order of the cores. Narrow floats are rounded once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from meshtf.graph.dtypes import sum_dtype
from meshtf.planning.local_work.reductions import Reduction

_COMBINE: dict[Reduction, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": lambda a, b: np.logical_or(a, b) if a.dtype == bool else a + b,
    "multiply": lambda a, b: np.logical_and(a, b) if a.dtype == bool else a * b,
    "max": np.maximum,
    "min": np.minimum,
}


def reduced(group: Sequence[np.ndarray], reduction: Reduction) -> np.ndarray:
    """Reduces the slices of a group of cores to one slice."""
    dtype = group[0].dtype
    wide = sum_dtype(tf.as_dtype(dtype)).as_numpy_dtype
    return functools.reduce(_COMBINE[reduction], [x.astype(wide, copy=False) for x in group]).astype(dtype)
