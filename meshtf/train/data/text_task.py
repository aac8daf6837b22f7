"""The task of learning from text."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping

import gin
import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import counted, nearest
from meshtf.field_checks import check_kinds, what_it_lacks
from meshtf.files.remote.failures import without_secrets
from meshtf.files.remote.remote_folder import is_remote
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data._packing import feature_dtype, lay_out
from meshtf.train.data._row_padding import at_rows
from meshtf.train.data._tokenized_text import TextReader, TextSplit, TokenizedText
from meshtf.train.data.arrangement import Arrangement, Concatenate, Rows
from meshtf.train.data.fingerprints import CONTENTS, SOURCE, checksum
from meshtf.train.data.objectives.objective import Objective
from meshtf.train.data.objectives.uniforms import Uniforms
from meshtf.train.data.shuffled_batches import ShuffledBatches
from meshtf.train.data.sources.document import Source
from meshtf.train.data.token_folders.making import TokenFolder
from meshtf.train.data.vocabularies.vocabulary import Vocabulary
from meshtf.train.task import WEIGHTS, Batch, Fingerprint, Position
from meshtf_programs.user_paths import user_path

EVALUATION_SEED = 0

NO_SUCH_KIND = "TextTask.{name} is no {name}: {value!r}{advice}"


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class TextTask:
    """A `TaskByRows` of text. The text is read and tokenized when it is first needed. The tokens are kept in memory or
    in a folder.

    Attributes:
      source: the documents.
      vocabulary: the vocabulary that encodes text as ids of tokens.
      objective: what is learnt from the text.
      length: the length of each sequence of an example, in tokens, or one length for all: {"inputs": 512, "targets":
        114}.
      arrangement: how documents become rows of that length.
      held_out: the share of the documents that is held out, by a hash of each; or a source of its own.
      num_evaluation_examples: if given, an evaluation takes only this many held-out examples, the first ones.
      skip_undecodable: whether a document that is not UTF-8 is left out and counted. If not, it is an error.
      tokens: if given, the folder that keeps the tokens, which then need not fit in memory. If it is missing,
        `meshtf-tokenize` makes it, or the first process that needs it. In a cluster that is process 0.

    Raises:
      ConfigurationError: if values are impossible, or do not fit together. When the text is first needed: see
        `TextReader.read`, and also if a folder is damaged or made of other text.
    """

    source: Source
    vocabulary: Vocabulary
    objective: Objective
    length: int | Mapping[str, int]
    arrangement: Arrangement = dataclasses.field(default_factory=Concatenate)
    held_out: float | Source = 0.05
    num_evaluation_examples: int | None = None
    skip_undecodable: bool = False
    tokens: str | None = None

    def __post_init__(self) -> None:
        kinds = {"source": Source, "vocabulary": Vocabulary, "objective": Objective, "arrangement": Arrangement}
        for name, kind in kinds.items():
            value = getattr(self, name)
            if isinstance(value, type) or not isinstance(value, kind):
                raise ConfigurationError(NO_SUCH_KIND.format(name=name, value=value, advice=what_it_lacks(value, kind)))
        _check_held_out(self.held_out)
        if self.tokens is not None and (not isinstance(self.tokens, str) or not self.tokens):
            raise ConfigurationError(f"TextTask.tokens must be the path of a folder, and is {self.tokens!r}")
        check_kinds(self, ConfigurationError)
        if self.num_evaluation_examples is not None and self.num_evaluation_examples < 1:
            raise ConfigurationError(
                f"TextTask.num_evaluation_examples must be 1 or more, and is {self.num_evaluation_examples}"
            )
        if self.tokens is not None and is_remote(self.tokens):
            place = without_secrets(self.tokens)
            raise ConfigurationError(f"TextTask.tokens must be a folder of this machine, or mounted, and is {place}")
        self.arrangement.check(self.objective)
        self.objective.check(tuple(self.sizes.values()), self.vocabulary)

    def __str__(self) -> str:
        text = self._text
        cut = self._train_rows.num_cut + self._held_out_rows.num_cut
        return (
            f"{self.name}: {_amount(text.train, len(self._train_rows))} to train on, "
            f"{_amount(text.held_out, len(self._held_out_rows))} held out"
            + (f"; {counted(text.num_skipped, 'document')} left out, not in UTF-8" if text.num_skipped else "")
            + (f"; {counted(cut, 'document cut', 'documents cut')}" if cut else "")
        )

    @property
    def name(self) -> str:
        return f"{type(self.objective).__name__} on {self.source}"

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        """The length of each sequence, by its name."""
        names = list(self.objective.sequences)
        if isinstance(self.length, Mapping):
            _check_names(self.length, names)
        lengths = self.length if isinstance(self.length, Mapping) else dict.fromkeys(names, self.length)
        for name, value in lengths.items():
            if not isinstance(value, int) or value < 1:
                raise ConfigurationError(f"TextTask.length of {name} must be an integer, 1 or more, and is {value!r}")
        return {name: lengths[name] for name in names}

    @property
    def tokens_per_example(self) -> int:
        return sum(self.sizes.values())

    def inputs(self, batch: mtf.Dimension) -> dict[str, mtf.TensorSpec]:
        return {
            name: mtf.TensorSpec(mtf.Shape([batch, mtf.Dimension("length", size)]), tf.as_dtype(feature_dtype(name)))
            for name, size in self._feature_sizes.items()
        }

    def training_batches(self, batch_size: int, seed: int, position: Position | None = None) -> ShuffledBatches:
        return self.training_rows(slice(0, batch_size), batch_size, seed, position)

    def training_rows(
        self, rows: slice, batch_size: int, seed: int, position: Position | None = None
    ) -> ShuffledBatches:
        names = list(self._feature_sizes)

        def features_of(indices: tf.Tensor, places: tf.Tensor) -> Batch:
            arrays = tf.numpy_function(made, [indices, places], [feature_dtype(name) for name in names])
            for name, array in zip(names, arrays, strict=True):
                array.set_shape([indices.shape[0], self._feature_sizes[name]])
            return dict(zip(names, arrays, strict=True))

        def made(indices: np.ndarray, places: np.ndarray) -> list[np.ndarray]:
            features = self.training_examples(indices, places, seed)
            return [features[name] for name in names]

        return ShuffledBatches(features_of, self.num_training_examples, batch_size, seed, position, rows)

    @property
    def num_training_examples(self) -> int:
        return len(self._train_rows)

    def training_examples(self, indices: np.ndarray, places: np.ndarray, seed: int) -> dict[str, np.ndarray]:
        return self._features(self._text.train, self._train_rows, indices, places, seed)

    def evaluation_batches(self, batch_size: int) -> Iterator[Batch]:
        return self.evaluation_rows(slice(0, batch_size), batch_size)

    def evaluation_rows(self, rows: slice, batch_size: int) -> Iterator[Batch]:
        count = min(len(self._held_out_rows), self.num_evaluation_examples or len(self._held_out_rows))
        for start in range(0, count, batch_size):
            indices = np.arange(start + rows.start, min(start + rows.stop, count))
            features = self._features(self._text.held_out, self._held_out_rows, indices, indices, EVALUATION_SEED)
            padded = {name: at_rows(array, rows, batch_size) for name, array in features.items()}
            weights = (np.arange(start, start + batch_size) < count).astype(np.float32)
            yield {**padded, WEIGHTS: weights}

    def num_bytes(self, features: Mapping[str, np.ndarray | tf.Tensor]) -> int:
        targets, weights = np.asarray(features["targets"]), np.asarray(features["targets_weights"])
        return self.vocabulary.num_bytes(targets[weights != 0])

    def fingerprint(self) -> Fingerprint:
        """Returns facts about the text and its rows, wherever it is read from, as `TaskOfKnownData.fingerprint`."""
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self) -> Fingerprint:
        rows, text, held_out = self._train_rows, self._text, self.held_out
        return {
            "text to train on": {SOURCE: str(self.source), **text.train.fingerprint},
            "held-out text": {
                SOURCE: str(held_out if isinstance(held_out, Source) else self.source),
                **text.held_out.fingerprint,
            },
            "rows to train on": {"rows": len(rows), CONTENTS: checksum([rows.pieces, rows.borders])},
        }

    @functools.cached_property
    def _feature_sizes(self) -> dict[str, int]:
        return {
            name: self.sizes[sequence]
            for sequence, names in self.objective.sequences.items()
            for name in (*names, f"{sequence}_segmentation", f"{sequence}_position")
        }

    @functools.cached_property
    def _text(self) -> TextSplit:
        folder = self.token_folder
        if folder is None:
            return TextReader(self.vocabulary, self.objective, self.skip_undecodable).read(self.source, self.held_out)
        return folder.made_by_all(collective_runtime().cluster, functools.partial(print, flush=True))

    @property
    def token_folder(self) -> TokenFolder | None:
        """The folder that keeps the tokens, even if it is missing. None if memory keeps them."""
        if self.tokens is None:
            return None
        reader = TextReader(self.vocabulary, self.objective, self.skip_undecodable)
        return TokenFolder(user_path(self.tokens), reader, self.source, self.held_out)

    @functools.cached_property
    def _train_rows(self) -> Rows:
        return self._rows(self._text.train)

    @functools.cached_property
    def _held_out_rows(self) -> Rows:
        return self._rows(self._text.held_out)

    def _rows(self, text: TokenizedText) -> Rows:
        return self.arrangement.rows(text.borders, self.objective, tuple(self.sizes.values()))

    def _features(
        self, text: TokenizedText, rows: Rows, indices: np.ndarray, places: np.ndarray, seed: int
    ) -> dict[str, np.ndarray]:
        """Returns features [batch, size] of rows of text by number, [batch]. Seed and place decide everything
        random in each.
        """
        examples = []
        for index, place in zip(indices.tolist(), places.tolist(), strict=True):
            uniforms = Uniforms(seed, place)
            pieces = rows.pieces[rows.borders[index] : rows.borders[index + 1]].tolist()
            examples.append([self.objective.example(_cut(text, piece), self.vocabulary, uniforms) for piece in pieces])
        return lay_out(examples, self.objective.sequences, tuple(self.sizes.values()))


def _cut(text: TokenizedText, piece: list[list[int]]) -> list[np.ndarray]:
    """Returns the tokens of each part of a piece, [its length] int32."""
    return [tokens[start:end].astype(np.int32) for tokens, (start, end) in zip(text.tokens, piece, strict=True)]


def _amount(text: TokenizedText, num_rows: int) -> str:
    text_of = f"{counted(text.num_documents, 'document')} of {counted(text.num_bytes, 'byte')}"
    return f"{text_of}, {counted(text.num_tokens, 'token')} in {counted(num_rows, 'row')}"


def _check_held_out(held_out: float | Source) -> None:
    is_share = isinstance(held_out, (int, float)) and 0 < held_out < 1
    if not is_share and (isinstance(held_out, type) or not isinstance(held_out, Source)):
        raise ConfigurationError(
            f"TextTask.held_out must be a share of the documents, in (0, 1), or a source, and is {held_out!r}"
        )


def _check_names(length: Mapping[str, int], names: list[str]) -> None:
    for name in length:
        if name not in names:
            raise ConfigurationError(
                f"TextTask.length names {name!r}, and the objective's sequences are {', '.join(names)}"
                f"{nearest(name, names)}"
            )
    if missing := [name for name in names if name not in length]:
        raise ConfigurationError(f"TextTask.length gives no length for {', '.join(missing)}")
