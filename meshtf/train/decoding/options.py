"""The options of decoding, as gin or flags give them."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Sequence

import gin

from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError, configuration_errors
from meshtf.train.decoding.sampling import Sampling

GREEDY, SAMPLE, BEAM, RANK = "greedy", "sample", "beam", "rank"

OPTIONS_OF = {
    GREEDY: (),
    SAMPLE: ("temperature", "top_k", "top_p"),
    BEAM: ("beam_size", "alpha"),
    RANK: ("temperature", "top_k", "top_p", "num_samples"),
}
"""The options of each method beside those of all methods."""


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class Decoding:
    """The way in which text is continued.

    Attributes:
      method: "greedy" takes the most likely token each time. "sample" draws one. "beam" is beam search. "rank" draws
        several continuations and orders them by log-likelihood over length.
      temperature: the temperature of drawn tokens. 0 is greedy.
      top_k: how many of the most likely tokens are drawn from. None: all.
      top_p: draws only from the fewest of these that together have this probability.
      beam_size: how many sequences beam search keeps and returns.
      alpha: the exponent of beam search's length penalty, ((5 + n) / 6) ** alpha (Wu et al. 2016).
      num_samples: how many continuations are ranked.
      max_length: the most tokens of a sequence, with its prompt. None: the model's length.
      max_new_tokens: the most tokens that are added. None: as many as there is room for.
      stop_ids: tokens that end a sequence, beside the vocabulary's end.
      batch_size: how many prompts are continued at a time. None: all, but at most the training's batch.
      seed: the seed of drawn tokens.

    Raises:
      ConfigurationError: if a value is impossible.
    """

    method: str = GREEDY
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    beam_size: int = 4
    alpha: float = 0.6
    num_samples: int = 4
    max_length: int | None = None
    max_new_tokens: int | None = None
    stop_ids: Sequence[int] = ()
    batch_size: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in OPTIONS_OF:
            methods = ", ".join(OPTIONS_OF)
            raise ConfigurationError(
                f"Decoding.method must be one of {methods}, and is {self.method!r}{nearest(self.method, OPTIONS_OF)}"
            )
        for name in ("beam_size", "num_samples"):
            self._check(name, "an integer, 1 or more", _is_integer(getattr(self, name), 1))
        for name in ("top_k", "max_length", "max_new_tokens", "batch_size"):
            value = getattr(self, name)
            self._check(name, "an integer, 1 or more, or None", value is None or _is_integer(value, 1))
        self._check("seed", "an integer, 0 or more", _is_integer(self.seed, 0))
        for name in ("temperature", "alpha"):
            self._check(name, "a number, 0 or more", _is_number(getattr(self, name)) and getattr(self, name) >= 0)
        self._check("top_p", "a number above 0, at most 1", _is_number(self.top_p) and 0 < self.top_p <= 1)
        self._check("stop_ids", "ids", all(_is_integer(i, 0) for i in self.stop_ids))

    @property
    def sampling(self) -> Sampling:
        if self.method == GREEDY:
            return Sampling()
        return Sampling(float(self.temperature), self.top_k, float(self.top_p))

    def all_stop_ids(self, end_id: int) -> tuple[int, ...]:
        return tuple(dict.fromkeys([end_id, *self.stop_ids]))

    def _check(self, name: str, wanted: str, holds: bool) -> None:
        if not holds:
            raise ConfigurationError(f"Decoding.{name} must be {wanted}, and is {getattr(self, name)!r}")


def configured_decoding(**options: object) -> Decoding:
    """Returns the decoding that gin's present configuration describes, with options that override it.

    Raises:
      ConfigurationError: if a value is impossible.
    """
    with configuration_errors():
        return Decoding(**options)  # type: ignore[arg-type]


def _is_integer(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and abs(float(value)) < float("inf")
