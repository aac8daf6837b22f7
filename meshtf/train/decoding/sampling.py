"""How the next token is chosen from its logits."""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

import meshtf as mtf

_REACHED = 1.0 - 2.0**-16
"""The share of `top_p` that counts as all of it. Logits that are rounded to float32, and are up to 100 times the
temperature, change a token's probability by 100 * 2**-23 of it at most, which is less than what may lack here. So a sum
that is `top_p` but for rounding, as in rows of equal logits, has reached it on every mesh and processor."""


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Draws from softmax(logits / temperature), of which only a part may be taken.

    Exact over a vocabulary that is split, and the same samples on every mesh. Of equal logits the one of the lower id
    comes first.

    Attributes:
      temperature: 0 takes the largest logit.
      top_k: if given, only so many of the largest logits are drawn from (Fan et al. 2018).
      top_p: if less than 1, of those only the fewest, the most probable first, whose probabilities together reach it
        (Holtzman et al. 2020); at least one. A token is taken if those before it have together less than
        `top_p * (1 - 2**-16)`, summed in float64: whatever is nearer to `top_p` has reached it.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0

    def choose(self, logits: mtf.Tensor, vocab: mtf.Dimension) -> mtf.Tensor:
        """Logits [.., vocab], float32, -inf where there is no token -> int32 [..]."""
        if not self.temperature:
            return mtf.argmax(logits, vocab)
        if self.top_k is None and self.top_p >= 1.0:
            return mtf.sample_with_temperature(logits, vocab, self.temperature)
        candidates = mtf.Dimension("candidates", min(self.top_k or vocab.size, vocab.size))
        values, ids = self.candidates(logits, vocab, candidates)
        chosen = mtf.sample_with_temperature(values, candidates, self.temperature)
        return mtf.gather(ids, chosen, candidates)

    def candidates(
        self, logits: mtf.Tensor, vocab: mtf.Dimension, candidates: mtf.Dimension
    ) -> tuple[mtf.Tensor, mtf.Tensor]:
        """The largest logits [.., candidates] in falling order, -inf where they are beyond `top_p`, and their ids."""
        values, ids = mtf.top_k(logits, vocab, candidates)
        if self.top_p >= 1.0:
            return values, ids
        probabilities = mtf.softmax(mtf.cast(values, tf.float64) * (1.0 / self.temperature), candidates)
        before = mtf.cumsum(probabilities, candidates, exclusive=True)
        is_reached = mtf.greater_equal(before, self.top_p * _REACHED)
        return mtf.where(is_reached, -math.inf, values), ids
