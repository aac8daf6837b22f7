"""Puts some rows of a batch at their places in the whole batch."""

from __future__ import annotations

import numpy as np


def at_rows(made: np.ndarray, rows: slice, batch_size: int) -> np.ndarray:
    """Returns `[n, ...]`, the first n of these rows, as `[batch_size, ...]`, with zeros elsewhere."""
    whole = np.zeros([batch_size, *made.shape[1:]], made.dtype)
    whole[rows.start : rows.start + len(made)] = made
    return whole
