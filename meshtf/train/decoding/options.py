"""The options of decoding, as gin or flags give them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

import gin

from meshtf.errors import nearest
from meshtf.files.unicode_text import is_unicode
from meshtf.number_checks import is_integer, is_number
from meshtf.train.configuration import ConfigurationError, configuration_errors
from meshtf.train.data.vocabularies.vocabulary import Vocabulary, inner_ids
from meshtf.train.decoding.beam_rules import BeamRules, GnmtRules, TransformersRules
from meshtf.train.decoding.forms.constraints import GRAMMAR, JSON_SCHEMA, REGEX, Constraint
from meshtf.train.decoding.penalties import Penalties
from meshtf.train.decoding.sampling import Sampling
from meshtf.train.decoding.stops import Stops
from meshtf.train.gin_files.bindings import present_bindings
from meshtf_programs.user_paths import user_path

GREEDY, SAMPLE, BEAM, RANK = "greedy", "sample", "beam", "rank"

_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
_BANS = ("no_repeat_ngram_size", "min_new_tokens")
_FORMS = (JSON_SCHEMA, GRAMMAR, REGEX)
_DRAWS = ("temperature", "top_k", "top_p", "min_p")

OPTIONS_OF = {
    GREEDY: (*_PENALTIES, *_BANS, "logprobs", *_FORMS),
    SAMPLE: (*_DRAWS, *_PENALTIES, *_BANS, "logprobs", *_FORMS),
    BEAM: ("beam_size", "num_results", "beam_rules", "alpha", "length_penalty", "early_stopping", *_BANS),
    RANK: (*_DRAWS, *_PENALTIES, *_BANS, "num_samples", "num_results", "logprobs"),
}
"""The options that only each method has, besides those of all methods."""

GNMT, TRANSFORMERS = "gnmt", "transformers"

OPTIONS_OF_RULES = {GNMT: ("alpha",), TRANSFORMERS: ("length_penalty", "early_stopping")}
"""The options of beam search that only some of its rules have."""

NEVER = "never"

_FOREIGN_STOP = """\
Decoding.stop_ids has {token}, and the vocabulary's ids end at {last}."""

_TEXT_FOR_BEAMS = """\
beam search can only stop at a single token, but the stop {text!r} is the ids {ids}. Stop at one token, or choose
another method."""


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
        has already, prompt included. Beam search has none of the three penalties.
      presence_penalty: the number that is subtracted from logits of tokens that were added at least once.
      frequency_penalty: the number that is subtracted from a token's logit for each time that it was added.
      no_repeat_ngram_size: the number of tokens in a row that never come twice, prompt included; 0 allows all.
      min_new_tokens: the number of added tokens before which no token ends a sequence.
      beam_size: the number of sequences that beam search keeps and returns.
      beam_rules: the rules of beam search, "gnmt" or "transformers". They say how sequences are scored and when a
        search ends.
      alpha: the exponent of GNMT's length penalty, ((5 + n) / 6) ** alpha (Wu et al. 2016).
      length_penalty: the exponent of Transformers' length penalty, n ** length_penalty.
      early_stopping: the end of a search by Transformers' rules. True ends it when `beam_size` sequences are finished,
        False when no better one is expected, "never" when no better one is possible.
      num_samples: the number of continuations that are ranked.
      num_results: the number of continuations that are returned by beam search and ranking, the best; None: all.
      logprobs: the number of most likely tokens that are returned for each added token, with their log-likelihoods. 0
        returns only the likelihood of the added token, and None nothing.
      max_length: the greatest length of a sequence in tokens, prompt included; None: the model's length.
      max_new_tokens: the greatest number of tokens that are added; None: as many as there is room for.
      end_ids: tokens that end a sequence instead of the vocabulary's end; None: the vocabulary's end.
      stop_ids: further tokens that end a sequence.
      stop_texts: texts that end a sequence. They are not part of the added text.
      batch_size: the number of prompts that are continued at a time; None: all, but no more than the training's batch.
      seed: the seed of the draws.
      json_schema: the file of a JSON schema that added text must have, or None. It is for "greedy" and "sample".
      grammar: the file of a grammar in Lark's form, or None. The same.
      regex: a regular expression that the whole added text must match, or None. The same.

    Raises:
      ConfigurationError: if a value is impossible.
    """

    method: str = GREEDY
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram_size: int = 0
    min_new_tokens: int = 0
    beam_size: int = 4
    beam_rules: str = GNMT
    alpha: float = 0.6
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    num_samples: int = 4
    num_results: int | None = None
    logprobs: int | None = None
    max_length: int | None = None
    max_new_tokens: int | None = None
    end_ids: Sequence[int] | None = None
    stop_ids: Sequence[int] = ()
    stop_texts: Sequence[str] = ()
    batch_size: int | None = None
    seed: int = 0
    json_schema: str | None = None
    grammar: str | None = None
    regex: str | None = None

    def __post_init__(self) -> None:
        if self.method not in OPTIONS_OF:
            methods, near = ", ".join(OPTIONS_OF), nearest(str(self.method), OPTIONS_OF)
            raise ConfigurationError(f"Decoding.method must be one of {methods}, and is {self.method!r}{near}")
        for name in ("beam_size", "num_samples"):
            self._check(name, "an integer, 1 or more", is_integer(getattr(self, name), 1))
        for name in ("top_k", "max_length", "max_new_tokens", "batch_size", "num_results"):
            value = getattr(self, name)
            self._check(name, "an integer, 1 or more, or None", value is None or is_integer(value, 1))
        for name in ("seed", "no_repeat_ngram_size", "min_new_tokens"):
            self._check(name, "an integer, 0 or more", is_integer(getattr(self, name), 0))
        self._check("logprobs", "an integer, 0 or more, or None", self.logprobs is None or is_integer(self.logprobs, 0))
        for name in ("presence_penalty", "frequency_penalty"):
            self._check(name, "a number", is_number(getattr(self, name)))
        for name in ("temperature", "alpha"):
            self._check(name, "a number, 0 or more", is_number(getattr(self, name)) and getattr(self, name) >= 0)
        self._check("top_p", "a number above 0, at most 1", is_number(self.top_p) and 0 < self.top_p <= 1)
        self._check("min_p", "a number from 0 to 1", is_number(self.min_p) and 0 <= self.min_p <= 1)
        penalty = self.repetition_penalty
        self._check("repetition_penalty", "a number above 0", is_number(penalty) and penalty > 0)
        self._check("length_penalty", "a number", is_number(self.length_penalty))
        self._check(
            "early_stopping",
            f'True, False or "{NEVER}"',
            isinstance(self.early_stopping, bool) or self.early_stopping == NEVER,
        )
        self._check("beam_rules", " or ".join(OPTIONS_OF_RULES), self.beam_rules in OPTIONS_OF_RULES)
        self._check("stop_ids", "ids", _are_ids(self.stop_ids))
        self._check("end_ids", "ids, or None", self.end_ids is None or _are_ids(self.end_ids))
        forms = [name for name in _FORMS if getattr(self, name) is not None]
        for name in forms:
            self._check(name, "a text, or None", isinstance(getattr(self, name), str))
        if len(forms) > 1:
            raise ConfigurationError(f"Decoding has {' and '.join(forms)}; added text can have one of them")
        if forms and forms[0] not in OPTIONS_OF[self.method]:
            raise ConfigurationError(
                f"Decoding.{forms[0]} is for greedy and sample, and Decoding.method is {self.method}"
            )
        self._check_num_results()
        texts = self.stop_texts
        is_list = isinstance(texts, list | tuple) and all(isinstance(text, str) and text for text in texts)
        self._check("stop_texts", "a list of texts that are not empty", is_list)
        self._check("stop_texts", "texts that UTF-8 can hold", all(map(is_unicode, texts)))

    @property
    def sampling(self) -> Sampling:
        if self.method == GREEDY:
            return Sampling()
        return Sampling(float(self.temperature), self.top_k, float(self.top_p), float(self.min_p))

    @property
    def penalties(self) -> Penalties:
        return Penalties(
            float(self.repetition_penalty),
            float(self.presence_penalty),
            float(self.frequency_penalty),
            self.no_repeat_ngram_size,
            self.min_new_tokens,
        )

    @property
    def constraint(self) -> Constraint | None:
        """The form that added text must have. Raises ConfigurationError if its file cannot be read."""
        for kind in _FORMS:
            if (given := getattr(self, kind)) is not None:
                return Constraint(kind, given if kind == REGEX else _text_of(kind, given))
        return None

    @property
    def rules(self) -> BeamRules:
        """The rules of beam search."""
        if self.beam_rules == GNMT:
            return GnmtRules(float(self.alpha))
        return TransformersRules(float(self.length_penalty), self.early_stopping)

    def stops(self, vocabulary: Vocabulary) -> Stops:
        """The tokens and texts that end a sequence of a vocabulary's tokens.

        The vocabulary's end ends a text of a given form, even if `end_ids` lacks it.

        Raises:
          ConfigurationError: if a stop id is beyond the vocabulary, or beam search has a stop of several tokens.
        """
        last = max(self.stop_ids, default=-1)
        if last >= vocabulary.size:
            raise ConfigurationError(_FOREIGN_STOP.format(token=last, last=vocabulary.size - 1))
        spelt = [tuple(inner_ids(vocabulary, text)) for text in self.stop_texts]
        has_form = any(getattr(self, name) is not None for name in _FORMS)
        ends = [*(self.end_ids or ()), *([vocabulary.end_id] if self.end_ids is None or has_form else [])]
        ids = dict.fromkeys([*ends, *self.stop_ids, *(ids[0] for ids in spelt if len(ids) == 1)])
        sequences = tuple(ids for ids in spelt if len(ids) > 1)
        if self.method == BEAM and sequences:
            text, found = next((text, ids) for text, ids in zip(self.stop_texts, spelt, strict=True) if len(ids) > 1)
            raise ConfigurationError(_TEXT_FOR_BEAMS.format(text=text, ids=list(found)))
        return Stops(tuple(ids), sequences, () if self.method == BEAM else tuple(self.stop_texts))

    def _check_num_results(self) -> None:
        name = {BEAM: "beam_size", RANK: "num_samples"}.get(self.method)
        if name is not None and self.num_results is not None and self.num_results > getattr(self, name):
            raise ConfigurationError(
                f"Decoding.num_results is {self.num_results}, and {self.method} has only {getattr(self, name)} "
                f"(Decoding.{name})"
            )

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
    """Adds gin's options of decoding to the operative configuration of a training, which itself does not decode.

    Raises:
      ConfigurationError: if a value is impossible.
    """
    if any(binding.configurable == Decoding.__name__ for binding in present_bindings()):
        configured_decoding()


def _are_ids(given: object) -> bool:
    return isinstance(given, Collection) and all(is_integer(each, 0) for each in given)


def _text_of(kind: str, name: str) -> str:
    try:
        return user_path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the file of Decoding.{kind}, {name}, cannot be read: {error}") from None
