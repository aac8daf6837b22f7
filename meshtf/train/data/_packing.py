"""Packs several examples into one row. Segment ids and positions tell them apart.

A row of size 8 with two examples of 3 and 4 tokens has the tokens a b c d e f g and a zero. Its segments are 1 1 1 2 2
2 2 0, and its positions 0 1 2 0 1 2 3 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from meshtf.errors import ShapeError
from meshtf.train.data.objectives.objective import Example


def packed_rows(lengths: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Computes which examples share a row. An example joins the row of the previous one if it fits there in every
    sequence.

    Args:
      lengths: [examples, sequences], the lengths of each example's sequences.
      sizes: the sizes of the row's sequences.

    Returns:
      [rows + 1] int64: row r has the examples from number r to before number r + 1.

    Raises:
      ShapeError: if an example fits in no row.
    """
    _check_each_fits(lengths, sizes)
    if not len(lengths):
        return np.zeros(1, np.int64)
    # For each example, compute where a row that begins with it would end. Then go from the first row to the next.
    ends = np.cumsum(np.concatenate([np.zeros([1, len(sizes)], np.int64), lengths]), axis=0)
    following = np.full(len(lengths), len(lengths))
    for column, size in zip(ends.T, sizes, strict=True):
        following = np.minimum(following, np.searchsorted(column, column[:-1] + size, side="right") - 1)
    borders, next_of = [0], following.tolist()
    while borders[-1] < len(lengths):
        borders.append(next_of[borders[-1]])
    return np.array(borders, np.int64)


def lay_out(
    rows: Sequence[Sequence[Example]], sequences: Mapping[str, tuple[str, ...]], sizes: Sequence[int]
) -> dict[str, np.ndarray]:
    """Puts the examples of each row one after another, and pads with zeros.

    The values of ids do not matter: an id 0 is a token like any other. An example without tokens in one sequence still
    has the same segment number in all of them.

    Args:
      rows: the examples of each row.
      sequences: for each sequence, the features of its length.
      sizes: the sizes of the sequences.

    Returns:
      Features [rows, size], float32 for weights and int32 for others. Each sequence also has int32 features
      `_segmentation` (1 for the row's first example, 2 for the next, 0 for padding) and `_position` (from 0 in each
      example).
    """
    features: dict[str, np.ndarray] = {}
    for (sequence, names), size in zip(sequences.items(), sizes, strict=True):
        for name in (*names, f"{sequence}_segmentation", f"{sequence}_position"):
            features[name] = np.zeros([len(rows), size], feature_dtype(name))
        for number, row in enumerate(rows):
            _fill_row(features, number, row, sequence, names)
    return features


def feature_dtype(name: str) -> np.dtype:
    return np.dtype(np.float32 if name.endswith("_weights") else np.int32)


def _fill_row(
    features: dict[str, np.ndarray], number: int, row: Sequence[Example], sequence: str, names: Sequence[str]
) -> None:
    end = 0
    for segment, example in enumerate(row, start=1):
        start, end = end, end + len(example[sequence])
        for name in names:
            features[name][number, start:end] = example[name]
        features[f"{sequence}_segmentation"][number, start:end] = segment
        features[f"{sequence}_position"][number, start:end] = np.arange(end - start)


def _check_each_fits(lengths: np.ndarray, sizes: Sequence[int]) -> None:
    too_long = np.flatnonzero((lengths > np.array(sizes)).any(axis=1))
    if len(too_long):
        first = int(too_long[0])
        raise ShapeError(
            f"example {first} has sequences of {lengths[first].tolist()} tokens, and a row has room for {list(sizes)}"
        )
