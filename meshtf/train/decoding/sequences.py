"""The result of decoding."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import meshtf as mtf

RESULTS = ("ids", "lengths", "log_likelihoods", "scores")
"""The names of results about whole sequences."""

TOKEN_RESULTS = ("token_log_likelihoods", "likeliest_ids", "likeliest_log_likelihoods")
"""The names of results about single tokens, in the order of `TokenLikelihoods`."""


@dataclasses.dataclass(frozen=True)
class TokenLikelihoods:
    """The likelihoods of single tokens. They are 0 where no token was added.

    Attributes:
      chosen: float32 [batch, (ranks), length], the log-likelihood of each added token.
      likeliest_ids: int32 [batch, (ranks), length, alternatives], the most likely tokens at each position.
      likeliest: float32, in the same shape, their log-likelihoods in falling order.
    """

    chosen: mtf.Tensor
    likeliest_ids: mtf.Tensor | None = None
    likeliest: mtf.Tensor | None = None

    @property
    def tensors(self) -> list[mtf.Tensor]:
        return [x for x in (self.chosen, self.likeliest_ids, self.likeliest) if x is not None]

    def map(self, fn: Callable[[mtf.Tensor], mtf.Tensor]) -> TokenLikelihoods:
        """Returns the same with `fn` applied to each tensor."""
        return TokenLikelihoods(*(fn(x) for x in self.tensors))


@dataclasses.dataclass(frozen=True)
class Sequences:
    """Sequences, best first along `ranks` if there are several of a prompt.

    Attributes:
      ids: int32 [batch, (ranks), length]: the prompt, the added tokens including those that stopped it, and zeros.
      lengths: int32 [batch, (ranks)], without the zeros.
      log_likelihoods: float32 [batch, (ranks)], of the added tokens.
      scores: float32 [batch, (ranks)], the order of the ranks: the log-likelihood over the length, or over a power of
        it. -inf if beam search has found fewer sequences.
      tokens: the likelihoods of single tokens, if asked for.
    """

    ids: mtf.Tensor
    lengths: mtf.Tensor
    log_likelihoods: mtf.Tensor
    scores: mtf.Tensor
    tokens: TokenLikelihoods | None = None

    def by_name(self) -> dict[str, mtf.Tensor]:
        """Returns the tensors by name, as the result of a program."""
        found = {name: getattr(self, name) for name in RESULTS}
        return found if self.tokens is None else found | dict(zip(TOKEN_RESULTS, self.tokens.tensors, strict=False))
