"""The options of decoding, as gin or flags give them."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Sequence

import gin

from meshtf.errors import nearest
from meshtf.train.configuration import ConfigurationError, configuration_errors
from meshtf.train.decoding.beam_rules import BeamRules, MeshtfRules, TransformersRules
from meshtf.train.decoding.sampling import Sampling
from meshtf.train.gin_files.bindings import present_bindings

GREEDY, SAMPLE, BEAM, RANK = "greedy", "sample", "beam", "rank"

OPTIONS_OF = {
    GREEDY: ("repetition_penalty",),
    SAMPLE: ("temperature", "top_k", "top_p", "min_p", "repetition_penalty"),
    BEAM: ("beam_size", "beam_rules", "alpha", "length_penalty", "early_stopping"),
    RANK: ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "num_samples"),
}
"""The options of each method beside those of all methods."""

MESHTF, TRANSFORMERS = "meshtf", "transformers"

OPTIONS_OF_RULES = {MESHTF: ("alpha",), TRANSFORMERS: ("length_penalty", "early_stopping")}
"""The options of beam search that only some of its rules have."""

NEVER = "never"


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class Decoding:
    """The way in which text is continued.

    Attributes:
      method: "greedy" takes the most likely token each time. "sample" draws one. "beam" is beam search. "rank" draws
        several continuations and orders them by log-likelihood over length.
      temperature: the temperature at which tokens are drawn; 0 is greedy.
      top_k: the number of most likely tokens that are drawn from; None: all.
      top_p: the probability that these tokens must have together. Only the fewest that have it are drawn from.
      min_p: the share of the largest probability that a token must have to be drawn.
      repetition_penalty: the number by which logits above 0 are divided, and others multiplied, of tokens that the text
        has already, prompt included. Beam search does not know it.
      beam_size: the number of sequences that beam search keeps and returns.
      beam_rules: the rules of beam search, "meshtf" or "transformers". They say how sequences are scored and when a
        search ends.
      alpha: the exponent of meshtf's length penalty, ((5 + n) / 6) ** alpha (Wu et al. 2016).
      length_penalty: the exponent of Transformers' length penalty, n ** length_penalty.
      early_stopping: the end of a search by Transformers' rules. True ends it when `beam_size` sequences are finished,
        False when no better one is to be expected, "never" when there can be none.
      num_samples: the number of continuations that are ranked.
      max_length: the greatest length of a sequence in tokens, prompt included; None: the model's length.
      max_new_tokens: the greatest number of tokens that are added; None: as many as there is room for.
      end_ids: tokens that end a sequence in place of the vocabulary's end; None: the vocabulary's end.
      stop_ids: further tokens that end a sequence.
      batch_size: the number of prompts that are continued at a time; None: all, but no more than the training's batch.
      seed: the seed of the draws.

    Raises:
      ConfigurationError: if a value is impossible.
    """

    method: str = GREEDY
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    beam_size: int = 4
    beam_rules: str = MESHTF
    alpha: float = 0.6
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    num_samples: int = 4
    max_length: int | None = None
    max_new_tokens: int | None = None
    end_ids: Sequence[int] | None = None
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
        self._check("min_p", "a number from 0 to 1", _is_number(self.min_p) and 0 <= self.min_p <= 1)
        penalty = self.repetition_penalty
        self._check("repetition_penalty", "a number above 0", _is_number(penalty) and penalty > 0)
        self._check("length_penalty", "a number", _is_number(self.length_penalty))
        self._check(
            "early_stopping",
            f'True, False or "{NEVER}"',
            isinstance(self.early_stopping, bool) or self.early_stopping == NEVER,
        )
        self._check("beam_rules", " or ".join(OPTIONS_OF_RULES), self.beam_rules in OPTIONS_OF_RULES)
        self._check("stop_ids", "ids", all(_is_integer(i, 0) for i in self.stop_ids))
        self._check("end_ids", "ids, or None", all(_is_integer(i, 0) for i in self.end_ids or ()))

    @property
    def sampling(self) -> Sampling:
        penalty = float(self.repetition_penalty)
        if self.method == GREEDY:
            return Sampling(repetition_penalty=penalty)
        return Sampling(float(self.temperature), self.top_k, float(self.top_p), float(self.min_p), penalty)

    @property
    def rules(self) -> BeamRules:
        """The rules of beam search."""
        if self.beam_rules == MESHTF:
            return MeshtfRules(float(self.alpha))
        return TransformersRules(float(self.length_penalty), self.early_stopping)

    def all_stop_ids(self, end_id: int) -> tuple[int, ...]:
        """The ids of tokens that end a sequence. `end_id` is the vocabulary's end."""
        return tuple(dict.fromkeys([*([end_id] if self.end_ids is None else self.end_ids), *self.stop_ids]))

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


def keep_decoding() -> None:
    """Makes what gin says of decoding a part of the operative configuration of a training, which does not decode.

    Raises:
      ConfigurationError: if a value is impossible.
    """
    if any(binding.configurable == Decoding.__name__ for binding in present_bindings()):
        configured_decoding()


def _is_integer(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and abs(float(value)) < float("inf")
