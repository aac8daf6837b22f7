"""What a program is trained and evaluated on: examples in a definite order, as batches of features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

import numpy as np
import tensorflow as tf

import meshtf as mtf

if TYPE_CHECKING:
    from meshtf.train.data.vocabularies.vocabulary import Vocabulary

Batch: TypeAlias = "dict[str, np.ndarray | tf.Tensor]"
"""Features [batch, ...] by the name under which a model gets them."""

Position: TypeAlias = "dict[str, int]"
"""How far training has come in its data: small, and of types that JSON keeps."""

Fingerprint: TypeAlias = "dict[str, dict[str, int | str]]"
"""By the name of each part of the data, facts about it: counts, and checksums; of types that JSON keeps."""

WEIGHTS = "weights"
"""The name under which an evaluation is given 1 for an example and 0 for padding."""


class Batches(Protocol):
    """An endless iterator of batches that knows where it is."""

    @property
    def position(self) -> Position:
        """Where the batches taken so far end; those that wait to be taken do not count.

        Given to `Task.training_batches`, with the same seed, it continues with the batch after them, bit for bit.
        """
        ...

    def __iter__(self) -> Iterator[Batch]: ...

    def __next__(self) -> Batch: ...


@runtime_checkable
class Task(Protocol):
    """Examples to train on and examples held out."""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        ...

    @property
    def tokens_per_example(self) -> int | None:
        """How many tokens a model sees with each example, padding included; None where there are none."""
        ...

    @property
    def vocabulary(self) -> Vocabulary | None:
        """What the ids of tokens stand for; None where the examples are no text."""
        ...

    def inputs(self, batch: mtf.Dimension) -> dict[str, mtf.TensorSpec]:
        """What a program is fed with a batch: features [batch, ...] by name."""
        ...

    def training_batches(self, batch_size: int, seed: int, position: Position | None = None) -> Batches:
        """Endless full batches, from the start or from a position: a pure function of the seed and the position.

        Raises:
          ConfigurationError: the position is in other data.
        """
        ...

    def evaluation_batches(self, batch_size: int) -> Iterable[Batch]:
        """Every held-out example once, in order, in full batches; the last is padded with zeros.

        Each batch has the feature `weights` besides, [batch] float32: 1 for an example and 0 for padding.
        """
        ...

    def num_bytes(self, features: Mapping[str, np.ndarray | tf.Tensor]) -> int | None:
        """How many bytes of text the targets of a batch stand for, where their weight is not 0; None for no text."""
        ...


@runtime_checkable
class TaskByRows(Task, Protocol):
    """A task that can make some examples of a batch without the others, as each process of a cluster needs some."""

    def training_rows(self, rows: slice, batch_size: int, seed: int, position: Position | None = None) -> Batches:
        """As `training_batches`, but of each batch only these rows are made, `slice(start, stop)`; the others are 0.

        There may be none, where the batch does not divide and a process has padding alone. What stands in a row is the
        same, whichever others are made with it.
        """
        ...

    def evaluation_rows(self, rows: slice, batch_size: int) -> Iterable[Batch]:
        """As `evaluation_batches`, likewise; but the feature `weights` is whole."""
        ...


@runtime_checkable
class TaskOfKnownData(Task, Protocol):
    """A task that knows its data again: a run does not go on where they are others than its checkpoint says."""

    def fingerprint(self) -> Fingerprint:
        """Another where examples are others, or in another order. Of each part of the data "contents" is a checksum,
        and may be "source" where it is from; a whole number is a count under the plural of what is counted."""
        ...


@runtime_checkable
class TaskOfParts(Task, Protocol):
    """A task whose held-out examples belong to parts, each of which an evaluation tells of by itself, too."""

    def parts_of_evaluation(self, batch_size: int) -> Iterator[str]:
        """The name of the part to which each batch of `evaluation_batches` belongs: examples of two are in none."""
        ...
