"""The texts of a batch under a constraint, on the host, while tokens are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from meshtf.train.decoding.forms.constraints import TokenRules
from meshtf.train.decoding.sequences import RESULTS, TOKEN_RESULTS
from meshtf.train.decoding.stops import Stops


class ConstrainedTexts:
    """Texts, the tokens that may follow each, and the results so far.

    A stop ends a text wherever it comes.

    Attributes:
      ids: int32 [rows, length], the prompts and the added tokens.
      is_done: bool [rows].

    Args:
      rules: the tokens that the constraint allows.
      stops: the ends of texts.
      ids: int32 [rows, length], the prompts.
      lengths: int32 [rows], their lengths.
      ends: int32 [rows], where the texts end at the latest.
    """

    def __init__(self, rules: TokenRules, stops: Stops, ids: np.ndarray, lengths: np.ndarray, ends: np.ndarray) -> None:
        self._stops = stops
        self.ids, self._given, self._ends = ids, lengths, ends
        self.is_done = lengths >= ends
        self._texts = [rules.begin(stops.ids) for _ in lengths]
        self._lengths = lengths.copy()
        self._tokens: dict[str, np.ndarray] = {}

    def is_added(self, position: int) -> np.ndarray:
        """Returns whether each text gets a token at a position, bool [rows]."""
        return ~self.is_done & (position >= self._given)

    def allowed(self, position: int, vocab_size: int) -> np.ndarray:
        """Returns the tokens that may come at a position, bool [rows, vocab_size]."""
        allowed = np.ones((len(self._texts), vocab_size), bool)
        for row in np.flatnonzero(self.is_added(position)).tolist():
            mask = self._texts[row].allowed()
            allowed[row] = False
            allowed[row, : len(mask)] = mask
        return allowed

    def add(self, position: int, chosen: np.ndarray, told: Mapping[str, np.ndarray]) -> None:
        """Adds the chosen tokens [rows] at a position. `told`: results about single tokens, [rows, ..] by name."""
        for name, values in told.items():
            if name not in self._tokens:
                self._tokens[name] = np.zeros([*self.ids.shape, *values.shape[1:]], values.dtype)
        for row in np.flatnonzero(self.is_added(position)).tolist():
            token = int(chosen[row])
            self.ids[row, position], self._lengths[row] = token, position + 1
            for name, values in told.items():
                self._tokens[name][row, position] = values[row]
            is_end = token in self._texts[row].end_ids
            if not is_end:
                self._texts[row].add(token)
            is_stop = is_end or self._stops_at(row, position)
            self.is_done[row] = is_stop or position + 1 >= self._ends[row]

    def _stops_at(self, row: int, position: int) -> bool:
        added: Sequence[int] = self.ids[row, self._given[row] : position + 1].tolist()
        return added[-1] in self._stops.ids or any(tuple(added[-len(stop) :]) == stop for stop in self._stops.sequences)

    def results(self) -> dict[str, np.ndarray]:
        """Returns the fields of `Sequences` by name."""
        chosen = self._tokens.get(TOKEN_RESULTS[0], np.zeros(self.ids.shape, np.float32))
        likelihoods = chosen.astype(np.float64).sum(1)
        scores = likelihoods / np.maximum(self._lengths - self._given, 1)
        whole = (self.ids, self._lengths, likelihoods.astype(np.float32), scores.astype(np.float32))
        return dict(zip(RESULTS, whole, strict=True)) | self._tokens
