"""Chooses the next token from its logits."""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

import meshtf as mtf
from meshtf.field_checks import check_kinds, check_not_negative, check_shares, check_sizes
from meshtf.ops.random.row_keys import row_gumbel

REACHED = 1.0 - 2.0**-16
"""The share of `top_p` that counts as all of it. If logits are up to 100 times the temperature, rounding them to
float32 changes a token's probability by at most 100 * 2**-23 of it. That is less than the share that may be missing
here. So a sum that equals `top_p` except for rounding, as with equal logits, reaches it on every mesh and CPU."""


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Draws from softmax(logits / temperature), or from a part of it.

    It is exact over a vocabulary that is split, and draws the same samples on every mesh and in every batch. If logits
    are equal, the one with the lower id comes first.

    Attributes:
      temperature: the temperature. 0 takes the largest logit.
      top_k: if given, only this many of the largest logits are drawn from (Fan et al. 2018).
      top_p: if less than 1, only the fewest of these whose probabilities together reach it are drawn from, the most
        probable first, and at least one (Holtzman et al. 2020). A token is included if the tokens before it have
        together less than `top_p * (1 - 2**-16)`, summed in float64. Any sum nearer to `top_p` has reached it.
      min_p: if above 0, tokens with less than this share of the largest probability are left out (Nguyen et al.
        2024).
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        check_kinds(self)
        check_not_negative(self, "temperature")
        check_sizes(self, "top_k")
        check_shares(self, "top_p", "min_p")

    def choose(self, logits: mtf.Tensor, vocab: mtf.Dimension, keys: mtf.Tensor | None = None) -> mtf.Tensor:
        """Returns the chosen tokens, int32 [..]: the ones with the largest logits + temperature * noise.

        Args:
          logits: float32 [.., vocab], -inf where there is no token.
          vocab: the dimension of the tokens.
          keys: int64 [..], the packed keys of the rows at this position. A token's noise depends only on its id and on
            the key. A temperature of 0 needs no keys.
        """
        if not self.temperature:
            return mtf.argmax(logits, vocab)
        assert keys is not None
        noise = row_gumbel(keys, vocab)
        if self._draws_from_all:
            return mtf.argmax(self._probable(logits, vocab) + self.temperature * noise, vocab)
        candidates = self._candidates(vocab)
        values, ids = self.candidates(logits, vocab, candidates)
        own = mtf.gather(noise, ids, vocab, output_shape=values.shape)
        chosen = mtf.argmax(self._probable(values, candidates) + self.temperature * own, candidates)
        return mtf.gather(ids, chosen, candidates)

    def possible(self, logits: mtf.Tensor, vocab: mtf.Dimension) -> mtf.Tensor:
        """Returns the logits [.., vocab], -inf where a token is never drawn. The temperature is above 0."""
        if self._draws_from_all:
            return self._probable(logits, vocab)
        candidates = self._candidates(vocab)
        values, ids = self.candidates(logits, vocab, candidates)
        nothing = mtf.fill(logits.mesh, -math.inf, logits.shape, logits.dtype)
        return mtf.scatter_update(nothing, ids, self._probable(values, candidates), vocab)

    @property
    def _draws_from_all(self) -> bool:
        return self.top_k is None and self.top_p >= 1.0

    def _candidates(self, vocab: mtf.Dimension) -> mtf.Dimension:
        return mtf.Dimension("candidates", min(self.top_k or vocab.size, vocab.size))

    def _probable(self, logits: mtf.Tensor, vocab: mtf.Dimension) -> mtf.Tensor:
        """Returns the logits, -inf where a token has less than `min_p` of the largest probability."""
        if not self.min_p:
            return logits
        least = mtf.reduce_max(logits, reduced_dim=vocab) + self.temperature * math.log(self.min_p)
        return mtf.where(mtf.less(logits, least), -math.inf, logits, output_shape=logits.shape)

    def candidates(
        self, logits: mtf.Tensor, vocab: mtf.Dimension, candidates: mtf.Dimension
    ) -> tuple[mtf.Tensor, mtf.Tensor]:
        """Returns the largest logits [.., candidates] in falling order, -inf beyond `top_p`, and their ids."""
        values, ids = mtf.top_k(logits, vocab, candidates)
        if self.top_p >= 1.0:
            return values, ids
        probabilities = mtf.softmax(mtf.cast(values, tf.float64) * (1.0 / self.temperature), candidates)
        before = mtf.cumsum(probabilities, candidates, exclusive=True)
        is_reached = mtf.greater_equal(before, self.top_p * REACHED)
        return mtf.where(is_reached, -math.inf, values), ids
