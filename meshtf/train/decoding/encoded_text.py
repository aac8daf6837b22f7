"""Encodes text as the ids for a model, and checks that it fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.vocabularies.vocabulary import Vocabulary
from meshtf.train.decoding.options import Decoding
from meshtf.train.decoding.programs import INPUTS, TARGETS, Sizes
from meshtf.train.decoding.prompt_text import PromptText

_TOO_LONG = """\
{text} is too long: it has {count:,} tokens, and {limit}.
Shorten it, or leave it out; nothing has run."""

_BEYOND = """\
Decoding.max_length is {asked:,}, but the model was trained on sequences of {length:,} tokens (TextTask.length)."""

_NO_PAIR = """\
{text} is not a pair: the model has an encoder, so a text to score must be an input, a tab, and the output to score."""


@dataclasses.dataclass(frozen=True)
class EncodedText:
    """A text, and its ids.

    Attributes:
      source: the text, and where it is from.
      targets: the ids that are continued, or scored.
      inputs: the ids for an encoder. Empty if there is none.
    """

    source: PromptText
    targets: tuple[int, ...]
    inputs: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class TextLimits:
    """The greatest lengths of a sequence.

    Attributes:
      greatest: the sizes on which the model was trained.
      length: the most tokens of targets, including prompts.
      new_tokens: the most tokens that are added.
    """

    greatest: Sizes
    length: int
    new_tokens: int

    @classmethod
    def of(cls, greatest: Sizes, decoding: Decoding) -> TextLimits:
        """Returns the limits by the model's sizes and the options.

        Raises:
          ConfigurationError: if the options ask for longer sequences than the model's.
        """
        if decoding.max_length is not None and decoding.max_length > greatest.targets:
            raise ConfigurationError(_BEYOND.format(asked=decoding.max_length, length=greatest.targets))
        length = decoding.max_length or greatest.targets
        return cls(greatest, length, min(decoding.max_new_tokens or length, length))

    @property
    def has_encoder(self) -> bool:
        return self.greatest.inputs is not None

    def end_of(self, text: EncodedText) -> int:
        """Returns the position before which a text's sequence ends."""
        return min(len(text.targets) + self.new_tokens, self.length)


def encoded_prompts(texts: Sequence[PromptText], vocabulary: Vocabulary, limits: TextLimits) -> list[EncodedText]:
    """Encodes prompts to be continued. For a model with an encoder they are the inputs.

    Raises:
      ConfigurationError: if a prompt leaves no room for a token. The message names it.
    """
    encoded = []
    for text in texts:
        ids = tuple(vocabulary.encode(text.text))
        if limits.has_encoder:
            encoded.append(EncodedText(text, (), _inputs(text, ids, vocabulary, limits)))
        else:
            of_model = f"the greatest length is {limits.length:,}, and the continuation needs one token at least"
            _check_fits(text, len(ids), limits.length - 1, of_model)
            encoded.append(EncodedText(text, ids))
    return encoded


def encoded_for_scoring(
    texts: Iterable[PromptText], vocabulary: Vocabulary, limits: TextLimits
) -> Iterator[EncodedText]:
    """Encodes texts to be scored, one after the other. For a model with an encoder they are pairs of an input and an
    output. The end of the output is scored as well.

    Raises:
      ConfigurationError: if a text is too long, or is not a pair. The message names it.
    """
    for text in texts:
        first, tab, second = text.text.partition("\t")
        if not limits.has_encoder:
            targets, inputs = tuple(vocabulary.encode(text.text)), ()
        elif tab:
            targets = (*vocabulary.encode(second), vocabulary.end_id)
            inputs = _inputs(text, tuple(vocabulary.encode(first)), vocabulary, limits)
        else:
            raise ConfigurationError(_NO_PAIR.format(text=text))
        _check_fits(text, len(targets), limits.length, f"the greatest length is {limits.length:,}")
        yield EncodedText(text, targets, inputs)


def _inputs(text: PromptText, ids: tuple[int, ...], vocabulary: Vocabulary, limits: TextLimits) -> tuple[int, ...]:
    size = limits.greatest.inputs
    assert size is not None
    _check_fits(text, len(ids), size - 1, f"the length of the model's inputs is {size:,}, the end included")
    return (*ids, vocabulary.end_id)


def _check_fits(text: PromptText, count: int, most: int, limit: str) -> None:
    if count > most:
        raise ConfigurationError(_TOO_LONG.format(text=text, count=count, limit=limit))


@dataclasses.dataclass(frozen=True)
class Extent:
    """The number of texts, and the lengths of the longest ones.

    Attributes:
      count: the number of texts.
      targets: the most ids of targets.
      inputs: the most ids of inputs.
      end: the greatest position before which a sequence ends.
    """

    count: int = 0
    targets: int = 0
    inputs: int = 0
    end: int = 0

    def with_text(self, text: EncodedText, end: int) -> Extent:
        """Returns the extent with one more text, whose sequence ends before `end`."""
        targets, inputs = max(self.targets, len(text.targets)), max(self.inputs, len(text.inputs))
        return Extent(self.count + 1, targets, inputs, max(self.end, end))


def fitting_sizes(extent: Extent, greatest: Sizes, num_cores: int, batch_size: int | None) -> Sizes:
    """Returns the smallest sizes that fit the texts.

    They are multiples of the number of cores, so any layout can split them, but at most the model's own sizes.
    """

    def rounded(size: int, most: int) -> int:
        return min(-(-max(size, 1) // num_cores) * num_cores, most)

    targets = rounded(extent.end, greatest.targets)
    return Sizes(
        batch_size or rounded(extent.count, greatest.batch),
        targets,
        None if greatest.inputs is None else rounded(extent.inputs, greatest.inputs),
        rounded(extent.targets, targets),
    )


def padded(rows: Sequence[Sequence[int]], num_rows: int, length: int, padding_id: int = 0) -> np.ndarray:
    """Returns int32 [num_rows, length], with padding at the end of each row and in missing rows."""
    array = np.full([num_rows, length], padding_id, np.int32)
    for row, ids in zip(array, rows, strict=False):
        row[: len(ids)] = ids
    return array


def id_features(texts: Sequence[EncodedText], sizes: Sizes, padding_id: int) -> dict[str, np.ndarray]:
    """Returns the sequences of ids of a batch, [batch, length]. The last rows are padding if there are fewer texts."""
    features = {TARGETS: padded([text.targets for text in texts], sizes.batch, sizes.targets)}
    if sizes.inputs is not None:
        features[INPUTS] = padded([text.inputs for text in texts], sizes.batch, sizes.inputs, padding_id)
    return features
