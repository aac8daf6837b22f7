"""The results for a text, as text and as JSON."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from typing import Any

from meshtf.errors import counted

BITS_PER_NAT = 1.0 / math.log(2.0)

_LARGEST_EXPONENT = math.log(sys.float_info.max)


@dataclasses.dataclass(frozen=True)
class LikelyToken:
    """A token that could stand at a place.

    Attributes:
      id: its id.
      text: its text by itself.
      log_likelihood: its log-likelihood, in nats.
    """

    id: int
    text: str
    log_likelihood: float


@dataclasses.dataclass(frozen=True)
class AddedToken(LikelyToken):
    """An added token.

    Attributes:
      likeliest: the most likely tokens at its place, the likeliest first. They may include the added token.
    """

    likeliest: Sequence[LikelyToken] = ()


@dataclasses.dataclass(frozen=True)
class Continuation:
    """A prompt and its continuation.

    Attributes:
      prompt: the given text.
      rank: the rank from 1, if there are several for a prompt.
      text: the added text, or the output for an input, without the token or text that stopped it.
      ids: the added ids, including those that stopped it.
      log_likelihood: the log-likelihood of these ids, in nats.
      score: the number by which continuations of a prompt are ranked.
      is_stopped: whether a token or text ended it, and not its length.
      tokens: the added tokens with their likelihoods, if asked for.
    """

    prompt: str
    rank: int
    text: str
    ids: Sequence[int]
    log_likelihood: float
    score: float
    is_stopped: bool
    tokens: Sequence[AddedToken] | None = None

    def as_json(self) -> dict[str, Any]:
        fields = dataclasses.asdict(self)
        if self.tokens is None:
            del fields["tokens"]
        return {**fields, "num_tokens": len(self.ids)}

    def as_text(self, number: int, shows_prompt: bool) -> str:
        """Returns a line of facts, then the text, after the prompt if wanted. `number` is the prompt's."""
        end = "stopped" if self.is_stopped else "cut"
        facts = f"prompt {number}, rank {self.rank}, score {self.score:.4f}, {counted(len(self.ids), 'token')}, {end}"
        return f"=== {facts}\n{self.prompt if shows_prompt else ''}{self.text}"


@dataclasses.dataclass(frozen=True)
class TextScore:
    """The likelihood of a text.

    Attributes:
      text: the scored text.
      log_likelihood: its log-likelihood, in nats.
      num_tokens: how many tokens were predicted.
      num_bytes: how many bytes of UTF-8 these tokens stand for.
    """

    text: str
    log_likelihood: float
    num_tokens: int
    num_bytes: int

    @classmethod
    def total(cls, scores: Sequence[TextScore]) -> TextScore:
        """Returns the score of several texts together, in which every token counts the same."""
        return cls(
            "",
            math.fsum(s.log_likelihood for s in scores),
            sum(s.num_tokens for s in scores),
            sum(s.num_bytes for s in scores),
        )

    @property
    def perplexity(self) -> float | None:
        """The exponential of the mean loss of a token. None if there are no tokens, or if it overflows a float."""
        mean = -self.log_likelihood / self.num_tokens if self.num_tokens else math.inf
        return math.exp(mean) if mean < _LARGEST_EXPONENT else None

    @property
    def bits_per_byte(self) -> float | None:
        """The bits per byte of text, or None without bytes."""
        return -self.log_likelihood * BITS_PER_NAT / self.num_bytes if self.num_bytes else None

    def as_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "perplexity": self.perplexity, "bits_per_byte": self.bits_per_byte}

    def __str__(self) -> str:
        perplexity = "" if self.perplexity is None else f", perplexity {self.perplexity:.4f}"
        bits = "" if self.bits_per_byte is None else f", {self.bits_per_byte:.4f} bits per byte"
        return (
            f"log-likelihood {self.log_likelihood:.4f}{perplexity}{bits} "
            f"({counted(self.num_tokens, 'token')}, {counted(self.num_bytes, 'byte')})"
        )
