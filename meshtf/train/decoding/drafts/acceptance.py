"""Accepts or rejects drafted tokens, so that accepted text has the distribution of the model alone.

A draft draws a token x from its distribution q. The model, whose distribution is p, accepts x with probability
min(1, p(x) / q(x)). Otherwise it draws another token in proportion to max(p - q, 0). So a token y comes out with
probability min(p(y), q(y)) + max(p(y) - q(y), 0) = p(y). See Leviathan et al. 2023, "Fast inference from Transformers
via speculative decoding".
"""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

import meshtf as mtf
from meshtf.ops.random.row_keys import row_gumbel, row_uniform, with_count
from meshtf.train.decoding.sampling import Sampling

CHECKED, DRAFTED = "checked", "drafted"
"""The dimensions of the positions that the model checks in one step, and of drafted tokens, one fewer."""

_DRAFTS, _ACCEPTS, _REPLACES = range(3)
"""The draws that a position may need. Each has a key of its own."""


@dataclasses.dataclass(frozen=True)
class DraftRule:
    """The way in which tokens are drafted, and accepted.

    Each draw depends only on the row's key and the position, so the batch size and the layout change none.

    Attributes:
      sampling: the way in which a token is chosen. It makes both distributions from the models' logits. With a
        temperature of 0 a token is accepted if it is the model's most likely one.
      keys: int64 [batch], the packed keys of the rows; None if nothing is drawn.
      vocab: the dimension of the tokens.
    """

    sampling: Sampling
    keys: mtf.Tensor | None
    vocab: mtf.Dimension

    def drafted(self, logits: mtf.Tensor, position: mtf.Tensor) -> mtf.Tensor:
        """Returns a token of each row, int32 [batch], from the draft's logits [batch, vocab] at int32 positions."""
        if self.keys is None:
            return mtf.argmax(logits, self.vocab)
        noise = self._noise(position, _DRAFTS)
        return mtf.argmax(self.log_probabilities(logits) + noise, self.vocab)

    def log_probabilities(self, logits: mtf.Tensor) -> mtf.Tensor:
        """Returns the logarithms [.., vocab] of the probabilities with which tokens are drawn."""
        possible = self.sampling.possible(logits, self.vocab)
        return mtf.log_softmax(possible * (1.0 / self.sampling.temperature), self.vocab)

    def checked(
        self, logits: mtf.Tensor, draft_logits: mtf.Tensor, drafted: mtf.Tensor, position: mtf.Tensor
    ) -> tuple[mtf.Tensor, mtf.Tensor]:
        """Checks the drafted tokens of each row.

        Args:
          logits: the model's logits, float32 [batch, checked, vocab].
          draft_logits: the draft's logits, float32 [batch, drafted, vocab].
          drafted: int32 [batch, drafted].
          position: int32 [batch], the position of the first of them.

        Returns:
          The number of tokens that were accepted, int32 [batch], and the row's next tokens, int32 [batch, checked]: the
          accepted ones, then a token of the model's own. Later tokens mean nothing.
        """
        if self.keys is None:
            best = mtf.argmax(logits, self.vocab)
            return leading(mtf.equal(_without_last(best), drafted)), best
        log_p, log_q = self.log_probabilities(logits), self.log_probabilities(draft_logits)
        places = position + mtf.range(position.mesh, drafted.shape[DRAFTED])
        count = leading(self._accepts(_without_last(log_p), log_q, drafted, places))
        rest = residual(mtf.gather(log_p, count, CHECKED), mtf.gather(mtf.exp(log_q), count, DRAFTED), self.vocab)
        own = mtf.argmax(rest + self._noise(position + count, _REPLACES), self.vocab)
        offsets = mtf.range(position.mesh, logits.shape[CHECKED])
        tokens = mtf.where(mtf.less(offsets, count), _with_one_more(drafted), own, output_shape=logits.shape[:-1])
        return count, tokens

    def _accepts(self, log_p: mtf.Tensor, log_q: mtf.Tensor, drafted: mtf.Tensor, places: mtf.Tensor) -> mtf.Tensor:
        """Tells which tokens would be accepted if all before them were, bool [batch, drafted]."""
        return mtf.less(row_uniform(self._keys(places, _ACCEPTS)), acceptance(log_p, log_q, drafted, self.vocab))

    def _noise(self, position: mtf.Tensor, draw: int) -> mtf.Tensor:
        """Numbers of Gumbel's distribution for one draw at each position, float32 [positions, vocab]."""
        return row_gumbel(self._keys(position, draw), self.vocab)

    def _keys(self, position: mtf.Tensor, draw: int) -> mtf.Tensor:
        assert self.keys is not None
        return with_count(with_count(self.keys, position), mtf.constant(position.mesh, draw, [], tf.int64))


def acceptance(log_p: mtf.Tensor, log_q: mtf.Tensor, drafted: mtf.Tensor, vocab: mtf.Dimension) -> mtf.Tensor:
    """Returns the probability min(1, p(x) / q(x)) with which drafted tokens x are accepted, float64 [..].

    Args:
      log_p: the logarithms of the model's probabilities, [.., vocab].
      log_q: the logarithms of the draft's probabilities.
      drafted: int32 [..]. The draft's probability of each is above 0.
      vocab: the dimension of the tokens.
    """
    log_ratio = mtf.gather(log_p, drafted, vocab) - mtf.gather(log_q, drafted, vocab)
    return mtf.exp(mtf.minimum(mtf.cast(log_ratio, tf.float64), 0.0))


def residual(log_p: mtf.Tensor, q: mtf.Tensor, vocab: mtf.Dimension) -> mtf.Tensor:
    """Returns log(max(p - q, 0)), float32 [.., vocab]: unscaled log-probabilities of the token after a rejection.

    They are those of p if q is 0, or if max(p - q, 0) rounds to 0 everywhere.
    """
    p = mtf.exp(log_p)
    left = mtf.maximum(p - q, 0.0)
    is_left = mtf.greater(left, 0.0)
    logarithms = mtf.where(is_left, mtf.log(mtf.where(is_left, left, 1.0)), -math.inf)
    return mtf.where(mtf.reduce_any(is_left, reduced_dim=vocab), logarithms, log_p, output_shape=log_p.shape)


def leading(is_accepted: mtf.Tensor) -> mtf.Tensor:
    """Returns how many tokens are accepted before the first that is not, int32 [..], from bool [.., drafted]."""
    rejections = mtf.cumsum(mtf.to_int32(mtf.logical_not(is_accepted)), DRAFTED)
    return mtf.reduce_sum(mtf.to_int32(mtf.equal(rejections, 0)), reduced_dim=DRAFTED)


def _without_last(x: mtf.Tensor) -> mtf.Tensor:
    """x [.., checked, ..] without the last position, which no drafted token has."""
    return mtf.slice(x, 0, x.shape[CHECKED].size - 1, CHECKED).rename({CHECKED: DRAFTED})


def _with_one_more(x: mtf.Tensor) -> mtf.Tensor:
    """x [.., drafted] with a 0 appended, over `checked`."""
    return mtf.pad(x, [0, 1], DRAFTED).rename({DRAFTED: CHECKED})
