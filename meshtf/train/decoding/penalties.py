"""Changes the logits of the next token depending on the tokens that a sequence already has.

For example, with `no_repeat_ngram_size=2` and the sequence "a b c a", the token "b" may not follow: "a b" would repeat.
"""

from __future__ import annotations

import dataclasses
import math

import meshtf as mtf
from meshtf.field_checks import check_above_zero, check_kinds, check_not_negative
from meshtf.train.decoding.prompts import is_one_of


@dataclasses.dataclass(frozen=True)
class TokensSoFar:
    """The tokens of sequences before the next one.

    Attributes:
      ids: int32 [.., length]. Index 0 is the token that stands before all texts, or -1 without one. Index i + 1 is
        token i of the sequence. After the last token all are -1.
      last: int32 scalar, the index of the last token.
      is_added: bool [.., length], whether a token was added, and not given.
      num_added: int32 [..], how many tokens were added.
      has_start: whether there is a token before all texts.
    """

    ids: mtf.Tensor
    last: mtf.Tensor
    is_added: mtf.Tensor
    num_added: mtf.Tensor
    has_start: bool

    @classmethod
    def of(
        cls, ids: mtf.Tensor, position: mtf.Tensor, prompt_lengths: mtf.Tensor, start: int | mtf.Tensor | None
    ) -> TokensSoFar:
        """The tokens before a position.

        Args:
          ids: int32 [.., length], sequences. Ids from `position` on do not matter.
          position: int32 scalar, the position of the next token.
          prompt_lengths: int32 [batch].
          start: the id before all texts, perhaps int32 [batch], or None.
        """
        length = ids.shape["length"]
        places = mtf.range(ids.mesh, length)
        behind = mtf.where(mtf.equal(places, 0), -1 if start is None else start, mtf.shift(ids, 1, length, wrap=False))
        known = mtf.where(mtf.less_equal(places, position), behind, -1, output_shape=ids.shape)
        is_added = mtf.logical_and(mtf.greater(places, prompt_lengths), mtf.less_equal(places, position))
        return cls(known, position, is_added, position - prompt_lengths, start is not None)

    @property
    def length(self) -> mtf.Dimension:
        return self.ids.shape["length"]


@dataclasses.dataclass(frozen=True)
class Penalties:
    """Penalties for tokens that would repeat others, and for an early end.

    Attributes:
      repetition: the number by which logits above 0 of tokens that are there already, prompt included, are divided, and
        others multiplied (Keskar et al. 2019). 1 changes nothing.
      presence: the number that is subtracted from the logits of tokens that were added at least once.
      frequency: the number that is subtracted from a token's logit for each time that it was added.
      no_repeat_ngram_size: the number of tokens in a row that may not come twice, prompt included; 0 allows all.
      min_new_tokens: the number of added tokens before which no sequence ends by a stop token.
    """

    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    no_repeat_ngram_size: int = 0
    min_new_tokens: int = 0

    def __post_init__(self) -> None:
        check_kinds(self)
        check_above_zero(self, "repetition")
        check_not_negative(self, "no_repeat_ngram_size", "min_new_tokens")

    def applied(
        self, logits: mtf.Tensor, so_far: TokensSoFar, vocab: mtf.Dimension, stop_ids: tuple[int, ...]
    ) -> mtf.Tensor:
        """Returns float32 logits [.., vocab] after all penalties, -inf for tokens that may not come next."""
        if self.repetition != 1.0:
            logits = self._repeated(logits, so_far.ids, vocab)
        if self.presence or self.frequency:
            logits = logits - self._for_added(so_far, logits, vocab)
        return self.without_banned(logits, so_far, vocab, stop_ids)

    def without_banned(
        self, logits: mtf.Tensor, so_far: TokensSoFar, vocab: mtf.Dimension, stop_ids: tuple[int, ...]
    ) -> mtf.Tensor:
        """Returns the logits [.., vocab], with -inf for tokens that may not come next."""
        if self.no_repeat_ngram_size:
            banned = self._ends_of_repeated_ngrams(so_far)
            nothing = mtf.fill(logits.mesh, -math.inf, banned.shape, logits.dtype)
            logits = mtf.scatter_update(logits, banned, nothing, vocab)
        if self.min_new_tokens and stop_ids:
            is_stop = is_one_of(mtf.range(logits.mesh, vocab), stop_ids)
            is_early = mtf.less(so_far.num_added, self.min_new_tokens)
            is_banned = mtf.logical_and(is_early, is_stop)
            logits = mtf.where(is_banned, -math.inf, logits, output_shape=logits.shape)
        return logits

    def _repeated(self, logits: mtf.Tensor, ids: mtf.Tensor, vocab: mtf.Dimension) -> mtf.Tensor:
        lower = mtf.where(mtf.greater(logits, 0.0), logits / self.repetition, logits * self.repetition)
        return mtf.scatter_update(logits, ids, mtf.gather(lower, ids, vocab), vocab)

    def _for_added(self, so_far: TokensSoFar, logits: mtf.Tensor, vocab: mtf.Dimension) -> mtf.Tensor:
        """The presence and frequency penalties [.., vocab]."""
        added = mtf.where(so_far.is_added, so_far.ids, -1, output_shape=so_far.ids.shape)
        ones = mtf.ones(added.mesh, added.shape, logits.dtype)
        counts = mtf.scatter_add(mtf.zeros_like(logits), added, ones, vocab)
        return self.frequency * counts + self.presence * mtf.cast(mtf.greater(counts, 0.0), logits.dtype)

    def _ends_of_repeated_ngrams(self, so_far: TokensSoFar) -> mtf.Tensor:
        """The last tokens of n-grams that would be repeated, int32 [.., length], and -1 at other places.

        They are the tokens after earlier occurrences of the sequence's last n - 1 tokens.
        """
        ids, length, before = so_far.ids, so_far.length, self.no_repeat_ngram_size - 1
        first = 0 if so_far.has_start else 1
        is_same = mtf.logical_and(
            mtf.greater_equal(mtf.range(ids.mesh, length), first + before),
            mtf.greater_equal(so_far.last, first + before - 1),
        )
        for back in range(1, before + 1):
            latest = mtf.gather(ids, so_far.last + 1 - back, length)
            is_same = mtf.logical_and(is_same, mtf.equal(mtf.shift(ids, back, length, wrap=False), latest))
        return mtf.where(is_same, ids, -1, output_shape=ids.shape)
