"""The task of classifying texts."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

import gin
import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import counted, nearest
from meshtf.field_checks import check_kinds, what_it_lacks
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data._tokenized_text import is_held_out
from meshtf.train.data.array_task import ArrayTask
from meshtf.train.data.shuffled_batches import ShuffledBatches
from meshtf.train.data.sources.labelled_files import LabelledSource, LabelledText
from meshtf.train.data.vocabularies.vocabulary import Vocabulary, inner_ids
from meshtf.train.task import Batch, Fingerprint, Position

INPUTS, TOKEN_TYPES, LABELS = "inputs", "inputs_token_types", "labels"

_NO_KIND = "LabelledTextTask.{name} is no {name}: {value!r}{advice}"
_NO_LABEL = '{place}, column "{column}": {label!r} is not one of the labels {labels}{hint}'
_NO_CLASS = '{place}, column "{column}": {label!r} is no number from 0 to {last} (LabelledTextTask.labels = {count})'
_NO_PADDING = """\
the vocabulary of LabelledTextTask has no id for padding, which fills texts up to the length of the longest;
HuggingFaceVocabulary.padding_token = "..." names one"""
_ONE_SIDE = """\
none of the {count} of {source} is {side}: a hash of each decides, with LabelledTextTask.held_out = {held_out}. \
Give more examples, another share, or a source of its own: LabelledTextTask.held_out = @..."""
_NOTHING = "there is no example in {source}"


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class LabelledTextTask:
    """A `TaskByRows` of texts, or of pairs of texts, each with one class, for a `TextClassifier`.

    A row has the vocabulary's begin token, if it adds one, the tokens of the text, and the end token. The second text
    of a pair follows, with an end token of its own. Texts that are too long for a row lose their last tokens, and in a
    pair the longer text loses them first. The examples are read when they are first needed, and kept in memory.

    Attributes:
      source: the examples.
      vocabulary: the vocabulary that encodes texts as tokens.
      labels: the names of the classes in the order of their numbers, or the number of classes. An example's label is
        the name of its class, or the number, from 0. A number that is also a name counts as the name.
      length: the length of each row, in tokens.
      held_out: the share of the examples that is held out, by a hash of each; or a source of held-out examples.
      has_pairs: whether examples are pairs; the source must give them.
      ends_between: the number of end tokens between the texts of a pair: 1 for BERT, 2 for RoBERTa.
      second_type: the token type of the second text and of its end. The first has type 0, and for RoBERTa both do.

    Raises:
      ConfigurationError: if a value is impossible. When examples are first needed: if a label is unknown (the message
        names file, row and column), or if there is nothing to train on or to hold out.
    """

    source: LabelledSource
    vocabulary: Vocabulary
    labels: Sequence[str] | int
    length: int
    held_out: float | LabelledSource = 0.1
    has_pairs: bool = False
    ends_between: int = 1
    second_type: int = 1

    def __post_init__(self) -> None:
        kinds = {"source": LabelledSource, "vocabulary": Vocabulary}
        for name, kind in kinds.items():
            value = getattr(self, name)
            if isinstance(value, type) or not isinstance(value, kind):
                raise ConfigurationError(_NO_KIND.format(name=name, value=value, advice=what_it_lacks(value, kind)))
        is_share = isinstance(self.held_out, int | float) and 0 < self.held_out < 1
        if not is_share and (isinstance(self.held_out, type) or not isinstance(self.held_out, LabelledSource)):
            raise ConfigurationError(
                "LabelledTextTask.held_out must be a share of the examples, in (0, 1), or a source, and is "
                f"{self.held_out!r}"
            )
        for name, lowest in (("ends_between", 1), ("second_type", 0)):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < lowest:
                raise ConfigurationError(
                    f"LabelledTextTask.{name} must be an integer, {lowest} or more, and is {getattr(self, name)!r}"
                )
        least = 4 + self.ends_between if self.has_pairs else 3  # a token of each text
        if not isinstance(self.length, int) or self.length < least:
            raise ConfigurationError(
                f"LabelledTextTask.length must be an integer, {least} or more, and is {self.length!r}"
            )
        _check_labels(self.labels)
        if self.vocabulary.padding_id < 0:
            raise ConfigurationError(_NO_PADDING)
        check_kinds(self, ConfigurationError)

    def __str__(self) -> str:
        return str(self._arrays)

    @property
    def name(self) -> str:
        return f"{counted(self.num_classes, 'class', 'classes')} of {self.source}"

    @property
    def num_classes(self) -> int:
        return self.labels if isinstance(self.labels, int) else len(self.labels)

    @property
    def tokens_per_example(self) -> int:
        return self.length

    def inputs(self, batch: mtf.Dimension) -> dict[str, mtf.TensorSpec]:
        return {name: mtf.TensorSpec(mtf.Shape([batch]) + shape, tf.int32) for name, shape in self._shapes.items()}

    def training_batches(self, batch_size: int, seed: int, position: Position | None = None) -> ShuffledBatches:
        return self._arrays.training_batches(batch_size, seed, position)

    def training_rows(
        self, rows: slice, batch_size: int, seed: int, position: Position | None = None
    ) -> ShuffledBatches:
        return self._arrays.training_rows(rows, batch_size, seed, position)

    @property
    def num_training_examples(self) -> int:
        return self._arrays.num_training_examples

    def training_examples(self, indices: np.ndarray, places: np.ndarray, seed: int) -> dict[str, np.ndarray]:
        return self._arrays.training_examples(indices, places, seed)

    def evaluation_batches(self, batch_size: int) -> Iterator[Batch]:
        return self._arrays.evaluation_batches(batch_size)

    def evaluation_rows(self, rows: slice, batch_size: int) -> Iterator[Batch]:
        return self._arrays.evaluation_rows(rows, batch_size)

    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the rows of tokens and of their labels; see `TaskOfKnownData.fingerprint`."""
        return self._arrays.fingerprint()

    def num_bytes(self, _: Mapping[str, np.ndarray | tf.Tensor]) -> None:
        """Returns None, since a class stands for no text."""

    @property
    def _shapes(self) -> dict[str, mtf.Shape]:
        row = mtf.Shape([mtf.Dimension("length", self.length)])
        types = {TOKEN_TYPES: row} if self.has_pairs else {}
        return {INPUTS: row, **types, LABELS: mtf.Shape([])}

    @functools.cached_property
    def _arrays(self) -> ArrayTask:
        examples = self._examples_of(self.source)
        if isinstance(self.held_out, LabelledSource):
            return ArrayTask(
                self.name, self._shapes, self._rows(examples), self._rows(self._examples_of(self.held_out))
            )
        sides = {
            side: [x for x in examples if is_held_out(_content(x), float(self.held_out)) == side]
            for side in (False, True)
        }
        for side, words in ((False, "to train on"), (True, "held out")):
            if not sides[side]:
                count = counted(len(examples), "example")
                message = _ONE_SIDE.format(count=count, source=self.source, side=words, held_out=self.held_out)
                raise ConfigurationError(message)
        return ArrayTask(self.name, self._shapes, self._rows(sides[False]), self._rows(sides[True]))

    def _examples_of(self, source: LabelledSource) -> list[LabelledText]:
        examples = list(source.examples())
        if not examples:
            raise ConfigurationError(_NOTHING.format(source=source))
        return examples

    def _rows(self, examples: Sequence[LabelledText]) -> dict[str, np.ndarray]:
        arrays = {
            name: np.zeros([len(examples), *(dim.size for dim in shape)], np.int32)
            for name, shape in self._shapes.items()
        }
        arrays[INPUTS][:] = self.vocabulary.padding_id
        for number, example in enumerate(examples):
            first, *second = self._tokens(example)
            ids = [*first, *(token for tokens in second for token in tokens)]
            arrays[INPUTS][number, : len(ids)] = ids
            if second:
                arrays[TOKEN_TYPES][number, len(first) : len(ids)] = self.second_type
            arrays[LABELS][number] = self._class(example)
        return arrays

    def _tokens(self, example: LabelledText) -> list[list[int]]:
        """The ids of each text, begin and ends included, together no more than a row."""
        if len(example.texts) != 1 + self.has_pairs:
            wanted = "pairs of texts" if self.has_pairs else "single texts"
            raise ConfigurationError(
                f"{example.place}: the source gives {counted(len(example.texts), 'text')}, and LabelledTextTask takes "
                f"{wanted} (LabelledTextTask.has_pairs = {self.has_pairs})"
            )
        begin = self.vocabulary.begin_id
        texts = [inner_ids(self.vocabulary, text) for text in example.texts]
        before = [[] if begin is None else [begin], []]
        counts = [self.ends_between, 1] if self.has_pairs else [1]
        room = self.length - sum(counts) - len(before[0])
        while sum(map(len, texts)) > room:
            max(texts, key=len).pop()
        ends = [[self.vocabulary.end_id] * count for count in counts]
        return [[*first, *ids, *last] for first, ids, last in zip(before, texts, ends, strict=False)]

    def _class(self, example: LabelledText) -> int:
        label, names = example.label, self.labels
        place = {"place": example.place, "column": example.column, "label": label}
        if not isinstance(names, int) and str(label) in names:  # in JSON and Parquet the name "1" may be a number
            return list(names).index(str(label))
        is_number = isinstance(label, int) or (label.isascii() and label.isdecimal())
        if is_number and 0 <= int(label) < self.num_classes:
            return int(label)
        if isinstance(names, int):
            raise ConfigurationError(_NO_CLASS.format(**place, last=names - 1, count=names))
        hint = nearest(str(label), names)
        raise ConfigurationError(_NO_LABEL.format(**place, labels=", ".join(names), hint=hint))


def _content(example: LabelledText) -> bytes:
    """The bytes whose hash decides whether an example is held out: its texts and its label."""
    return "\0".join([*example.texts, str(example.label)]).encode(errors="surrogatepass")


def _check_labels(labels: Sequence[str] | int) -> None:
    is_count = isinstance(labels, int) and not isinstance(labels, bool) and labels >= 2
    names = labels if isinstance(labels, list | tuple) and all(isinstance(n, str) and n for n in labels) else []
    if not is_count and not len(set(names)) == len(names) >= 2:
        raise ConfigurationError(
            "LabelledTextTask.labels must be the names of the classes, two or more and no two alike, or how many there "
            f"are, and is {labels!r}"
        )
