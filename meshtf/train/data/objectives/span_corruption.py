"""Span corruption, as T5 is trained (Raffel et al. 2020)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import gin
import numpy as np

from meshtf.errors import counted
from meshtf.field_checks import check_kinds
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.objectives.objective import Example, TruncationSide
from meshtf.train.data.objectives.uniforms import Uniforms
from meshtf.train.data.vocabularies.vocabulary import Vocabulary

TOO_FEW_SENTINELS = """\
SpanCorruption needs {needed} for inputs of length {length}, and the vocabulary has {found}.
Give it more, as {name}.extra_ids = {needed}, or make TextTask.length smaller."""

TOO_SHORT = """\
SpanCorruption fits no text in inputs of length {inputs} with targets of length {targets}.
Make TextTask.length larger."""


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class SpanCorruption:
    """An objective whose `inputs` are the text without some spans, and whose `targets` are these spans.

    Sentinels mark where each span was: sentinel k replaces the k-th span, and precedes it in `targets`. Text and spans
    alternate, with text first and a span last. All such divisions are equally likely. Both sequences have an end.

    Attributes:
      noise_density: the share of the text that is removed.
      mean_span_length: the mean length of a span, in tokens.

    Raises:
      ConfigurationError: if the density is not between 0 and 1, or spans are shorter than a token.
    """

    noise_density: float = 0.15
    mean_span_length: float = 3.0

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)
        if not 0 < self.noise_density < 1:
            raise ConfigurationError(f"SpanCorruption.noise_density must be in (0, 1), and is {self.noise_density}")
        if self.mean_span_length < 1:
            raise ConfigurationError(
                f"SpanCorruption.mean_span_length must be 1 or more, and is {self.mean_span_length}"
            )

    @property
    def sequences(self) -> Mapping[str, tuple[str, ...]]:
        return {"inputs": ("inputs",), "targets": ("targets", "targets_weights")}

    @property
    def num_parts(self) -> int:
        return 1

    @property
    def keeps_length(self) -> bool:
        return False

    @property
    def truncation_sides(self) -> tuple[TruncationSide, ...]:
        return ("right",)

    def parts(self, document: str) -> tuple[str, ...]:
        return (document,)

    def lengths(self, part_lengths: Sequence[int]) -> tuple[int, ...]:
        (length,) = part_lengths
        noise, spans = self._noise_and_spans(length)
        return length - noise + spans + 1, noise + spans + 1

    def limits(self, sizes: Sequence[int]) -> tuple[int, ...]:
        inputs_size, targets_size = sizes
        length = 0
        while all(needed <= size for needed, size in zip(self.lengths([length + 1]), sizes, strict=True)):
            length += 1
        if length == 0:
            raise ConfigurationError(TOO_SHORT.format(inputs=inputs_size, targets=targets_size))
        return (length,)

    def check(self, sizes: Sequence[int], vocabulary: Vocabulary) -> None:
        _, needed = self._noise_and_spans(*self.limits(sizes))
        if needed > vocabulary.extra_ids:
            raise ConfigurationError(
                TOO_FEW_SENTINELS.format(
                    needed=counted(needed, "sentinel"),
                    length=sizes[0],
                    found=vocabulary.extra_ids,
                    name=type(vocabulary).__name__,
                )
            )

    def example(self, parts: Sequence[np.ndarray], vocabulary: Vocabulary, uniforms: Uniforms) -> Example:
        (tokens,) = parts
        noise, spans = self._noise_and_spans(len(tokens))
        text_lengths = _divided(len(tokens) - noise, spans, uniforms)
        span_lengths = _divided(noise, spans, uniforms)
        is_noise = np.zeros(len(tokens), bool)
        if spans:
            is_noise = np.repeat(np.tile([False, True], spans), np.stack([text_lengths, span_lengths], 1).ravel())
        sentinels = vocabulary.size - 1 - np.arange(spans, dtype=np.int32)
        numbers = np.arange(spans)
        targets = _joined(
            tokens[is_noise], np.cumsum(span_lengths) - span_lengths + numbers, sentinels, vocabulary.end_id
        )
        return {
            "inputs": _joined(tokens[~is_noise], np.cumsum(text_lengths) + numbers, sentinels, vocabulary.end_id),
            "targets": targets,
            "targets_weights": np.ones(len(targets), np.float32),
        }

    def _noise_and_spans(self, length: int) -> tuple[int, int]:
        """Returns how many tokens of a text are removed, and in how many spans. A text of one token keeps it."""
        if length < 2:
            return 0, 0
        noise = min(max(round(length * self.noise_density), 1), length - 1)
        spans = min(max(round(noise / self.mean_span_length), 1), length - noise)
        return noise, spans


def _divided(total: int, count: int, uniforms: Uniforms) -> np.ndarray:
    """Returns positive integers whose sum is the total, [count] int64. Every such list is equally likely."""
    if count == 0:
        return np.zeros(0, np.int64)
    borders = np.concatenate(([0], uniforms.choose(count - 1, total - 1) + 1, [total]))
    return borders[1:] - borders[:-1]


def _joined(tokens: np.ndarray, places: np.ndarray, sentinels: np.ndarray, end_id: int) -> np.ndarray:
    """Returns tokens in order around sentinels at given places of the result, and then the end; int32."""
    joined = np.empty(len(tokens) + len(sentinels) + 1, np.int32)
    is_token = np.ones(len(joined), bool)
    joined[places] = sentinels
    is_token[places] = False
    joined[-1] = end_id
    is_token[-1] = False
    joined[is_token] = tokens
    return joined
