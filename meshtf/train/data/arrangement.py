"""Arranges documents in rows of a fixed length.

Take documents of 5, 3 and 6 tokens, and rows of 8. `Concatenate` joins them into 14 tokens, and cuts these into rows of
8 and 6. `Pack` puts the first two into one row and the third into another, as segments. `Pad` gives each its own row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import gin
import numpy as np

from meshtf.field_checks import check_kinds
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data._packing import packed_rows
from meshtf.train.data.objectives.objective import Objective

NEEDS_WHOLE_DOCUMENTS = """\
Concatenate joins all documents into one text, but {objective} needs {num_parts} texts in each document.
Use TextTask.arrangement = @Pack() or @Pad()."""

CHANGES_LENGTH = """\
Concatenate.separate_documents fills rows exactly, which {objective} does not allow: it changes the length of a text.
Use TextTask.arrangement = @Pack() to keep documents apart."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """The tokens in each row.

    Attributes:
      pieces: [pieces, parts, 2] int64: where each piece begins and ends in the tokens of each part.
      borders: [rows + 1] int64: row r has the pieces from number r to before number r + 1.
      num_cut: how many documents lose tokens because they are too long.
    """

    pieces: np.ndarray
    borders: np.ndarray
    num_cut: int = 0

    def __len__(self) -> int:
        return len(self.borders) - 1


@runtime_checkable
class Arrangement(Protocol):
    """Divides documents into rows."""

    def check(self, objective: Objective) -> None:
        """Checks that it works with the objective.

        Raises:
          ConfigurationError: if it does not.
        """
        ...

    def rows(self, borders: Sequence[np.ndarray], objective: Objective, sizes: Sequence[int]) -> Rows:
        """Arranges documents, each of which ends with the end of a sequence.

        Args:
          borders: for each part, [documents + 1] int64: where each document begins in the tokens.
          objective: makes examples from the tokens.
          sizes: the sizes of a row's sequences.
        """
        ...


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class Concatenate:
    """Joins all documents into one long text, and cuts it into rows. All rows except the last are full.

    Attributes:
      separate_documents: whether the documents in a row are segments of their own, which do not see each other.
    """

    separate_documents: bool = False

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)

    def check(self, objective: Objective) -> None:
        if objective.num_parts != 1:
            raise ConfigurationError(
                NEEDS_WHOLE_DOCUMENTS.format(objective=type(objective).__name__, num_parts=objective.num_parts)
            )
        if self.separate_documents and not objective.keeps_length:
            raise ConfigurationError(CHANGES_LENGTH.format(objective=type(objective).__name__))

    def rows(self, borders: Sequence[np.ndarray], objective: Objective, sizes: Sequence[int]) -> Rows:
        (documents,) = borders
        (size,) = objective.limits(sizes)
        row_starts = np.arange(0, documents[-1], size)
        starts = np.union1d(row_starts, documents[:-1]) if self.separate_documents else row_starts
        pieces = np.stack([starts, np.append(starts[1:], documents[-1])], axis=1)
        return Rows(pieces[:, np.newaxis], np.append(np.searchsorted(starts, row_starts), len(starts)))


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class Pack:
    """Puts as many whole documents into a row as fit, each as a segment of its own.

    A document that is longer than a row becomes several. A pair that is too long is cut where the objective says.
    """

    def check(self, objective: Objective) -> None:
        """Accepts every objective."""

    def rows(self, borders: Sequence[np.ndarray], objective: Objective, sizes: Sequence[int]) -> Rows:
        pieces, num_cut = _pieces(borders, objective, sizes)
        lengths = pieces[..., 1] - pieces[..., 0]
        if not objective.keeps_length:
            lengths = np.array([objective.lengths(lengths) for lengths in lengths.tolist()], np.int64)
        return Rows(pieces, packed_rows(lengths, sizes), num_cut)


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class Pad:
    """Puts one document into each row.

    A document that is longer than a row becomes several. A pair that is too long is cut where the objective says.
    """

    def check(self, objective: Objective) -> None:
        """Accepts every objective."""

    def rows(self, borders: Sequence[np.ndarray], objective: Objective, sizes: Sequence[int]) -> Rows:
        pieces, num_cut = _pieces(borders, objective, sizes)
        return Rows(pieces, np.arange(len(pieces) + 1), num_cut)


def _pieces(borders: Sequence[np.ndarray], objective: Objective, sizes: Sequence[int]) -> tuple[np.ndarray, int]:
    """Returns [pieces, parts, 2] int64, no piece longer than the limits, and how many documents lose tokens."""
    limits = objective.limits(sizes)
    own_end = 0 if objective.keeps_length else 1  # the objective adds an end to every piece, so the text's is cut off
    starts = np.stack([part[:-1] for part in borders], axis=1)
    ends = np.stack([part[1:] for part in borders], axis=1) - own_end
    if objective.num_parts == 1:
        return _cut_up(starts[:, 0], ends[:, 0], limits[0])[:, np.newaxis], 0
    surplus = np.maximum(ends - starts - np.array(limits), 0)
    is_left = np.array([side == "left" for side in objective.truncation_sides])
    pieces = np.stack([starts + surplus * is_left, ends - surplus * ~is_left], axis=2)
    return pieces, int(np.count_nonzero(surplus.any(axis=1)))


def _cut_up(starts: np.ndarray, ends: np.ndarray, limit: int) -> np.ndarray:
    """Cuts each document into pieces of `limit` tokens, the last one shorter: [documents] each -> [pieces, 2]."""
    counts = np.maximum(-(-(ends - starts) // limit), 1)
    first_pieces = np.repeat(np.cumsum(counts) - counts, counts)
    piece_starts = np.repeat(starts, counts) + (np.arange(counts.sum()) - first_pieces) * limit
    return np.stack([piece_starts, np.minimum(piece_starts + limit, np.repeat(ends, counts))], axis=1)
