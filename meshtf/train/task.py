"""The data of a training: examples in a definite order, as batches of features, to train on and to evaluate on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np
import tensorflow as tf

import meshtf as mtf

if TYPE_CHECKING:
    from meshtf.train.data.vocabularies.vocabulary import Vocabulary

Batch: TypeAlias = "dict[str, np.ndarray | tf.Tensor]"
"""Features [batch, ...] by the names that a model uses."""

Position: TypeAlias = "dict[str, int]"
"""The progress of training through its data. It is small, and of types that JSON can hold."""

Fingerprint: TypeAlias = "dict[str, dict[str, int | str]]"
"""Counts and checksums of each part of the data, by its name, in types that JSON can hold."""

WEIGHTS = "weights"
"""The feature of an evaluation that is 1 for an example and 0 for padding."""


class Batches(Protocol):
    """An endless iterator of batches that has a position."""

    @property
    def position(self) -> Position:
        """The position after the batches taken so far. Prefetched batches do not count.

        `Task.training_batches`, with this position and the same seed, continues with the next batch, bit for bit.
        """
        ...

    def __iter__(self) -> Iterator[Batch]: ...

    def __next__(self) -> Batch: ...


@runtime_checkable
class Task(Protocol):
    """Examples to train on and examples held out."""

    @property
    def name(self) -> str:
        """The name of the task in messages."""
        ...

    @property
    def tokens_per_example(self) -> int | None:
        """The number of tokens in an example, including padding, or None if there are no tokens."""
        ...

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary of the token ids, or None if the examples are not text."""
        ...

    def inputs(self, batch: mtf.Dimension) -> dict[str, mtf.TensorSpec]:
        """Returns the specifications of a program's inputs for a batch: features [batch, ...] by name."""
        ...

    def training_batches(self, batch_size: int, seed: int, position: Position | None = None) -> Batches:
        """Returns endless full batches, from the start or from a position. They depend only on the seed and the
        position.

        Raises:
          ConfigurationError: if the position belongs to other data.
        """
        ...

    def evaluation_batches(self, batch_size: int) -> Iterable[Batch]:
        """Yields every held-out example once, in order, in full batches. The last one is padded with zeros.

        Each batch also has the feature `weights`, [batch] float32: 1 for an example and 0 for padding.
        """
        ...

    def num_bytes(self, features: Mapping[str, np.ndarray | tf.Tensor]) -> int | None:
        """Returns how many bytes of text a batch's targets stand for, where their weight is not 0. Returns None if
        there is no text.
        """
        ...


@runtime_checkable
class TaskByRows(Task, Protocol):
    """A task that can make some rows of a batch without the others. A process of a cluster needs only some."""

    def training_rows(self, rows: slice, batch_size: int, seed: int, position: Position | None = None) -> Batches:
        """Returns the same as `training_batches`, but makes only the rows `slice(start, stop)` of each batch. The
        others are 0.

        `rows` is empty if the batch does not divide evenly and a process has only padding. A row does not depend on
        which other rows are made with it.
        """
        ...

    def evaluation_rows(self, rows: slice, batch_size: int) -> Iterable[Batch]:
        """Yields the same as `evaluation_batches`, with only these rows. The feature `weights` has all rows."""
        ...


@runtime_checkable
class TaskOfKnownData(Task, Protocol):
    """A task with a fingerprint of its data. A resumed run stops if they differ from the data of its checkpoint."""

    def fingerprint(self) -> Fingerprint:
        """Returns facts that differ if the examples, or their order, differ.

        For each part of the data, "contents" is a checksum, and "source" may say where the part is from. An integer is
        a count, and its key names the counted things in the plural. Any other text is a setting on which the order
        depends.
        """
        ...


@runtime_checkable
class TaskOfParts(Task, Protocol):
    """A task whose held-out examples belong to parts. An evaluation also has means of each part."""

    def parts_of_evaluation(self, batch_size: int) -> Iterator[str]:
        """Yields the name of the part that each batch of `evaluation_batches` belongs to. No batch has examples
        of two parts.
        """
        ...
