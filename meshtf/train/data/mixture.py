"""Mixes several tasks into one."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import gin
import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.fingerprints import SOURCE, fingerprint_of
from meshtf.train.data.objectives.uniforms import Uniforms
from meshtf.train.data.shuffled_batches import ShuffledBatches, shuffled
from meshtf.train.data.vocabularies.vocabulary import Vocabulary
from meshtf.train.task import Batch, Fingerprint, Position, TaskByRows

BLOCK = 1 << 16
"""The number of places in a block, in which every task has its exact share. It limits the precision of rates."""

NO_TASKS = """\
Mixture.tasks must be a list of tasks, two or more, whose examples are reached by number (TextTask, ArrayTask), and is \
{tasks!r}; in gin [@first/TextTask(), @second/TextTask()]"""

OTHER_FEATURES = """\
the tasks of a mixture must have the same features, and the ones of "{other}" and "{first}" differ:
  {first_inputs}
  {other_inputs}"""


@runtime_checkable
class TaskByExamples(TaskByRows, Protocol):
    """A task whose examples to train on can be reached by their numbers."""

    @property
    def num_training_examples(self) -> int: ...

    def training_examples(self, indices: np.ndarray, places: np.ndarray, seed: int) -> dict[str, np.ndarray]:
        """Returns features [n, ...] of examples by number, [n] int64. Seed and place, [n] int64, decide
        everything random.
        """
        ...


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class Mixture:
    """Tasks with the same features, trained on together: a batch has examples of all tasks, in proportion to their
    rates.

    The example at a place depends only on the seed, the place and the tasks' shares. In each block of 65,536 places
    every task has its share, in a random order. Each task's examples come in epochs, and each epoch is a new
    permutation. So a run does not resume with other shares unless it may continue with changed data. An evaluation
    runs the tasks one after another. It has means over all tasks, and means of each task, such as "summaries/loss".

    With rates from sizes, a task of n examples has a rate of min(n, `largest_size`) ** (1 / `temperature`), as Raffel
    et al. (2020, section 3.5.2) mix. A temperature of 1 mixes in proportion, and a higher one more equally.

    Attributes:
      tasks: the tasks, two or more.
      names: the names of the tasks, for metrics. The default is their own.
      rates: how often each is taken, relative to the others. By default, their numbers of examples decide.
      temperature: the temperature of rates from sizes.
      largest_size: the largest size that counts for rates from sizes.

    Raises:
      ConfigurationError: if tasks differ in their features or are of another kind, or if a value is impossible.
    """

    tasks: Sequence[TaskByExamples]
    names: Sequence[str] | None = None
    rates: Sequence[float] | None = None
    temperature: float = 1.0
    largest_size: int | None = None

    def __post_init__(self) -> None:
        tasks = self.tasks
        are_tasks = isinstance(tasks, Sequence) and all(isinstance(task, TaskByExamples) for task in tasks)
        if not are_tasks or len(tasks) < 2 or any(isinstance(task, type) for task in tasks):
            raise ConfigurationError(NO_TASKS.format(tasks=tasks))
        self._check_features()
        for what, given in (("names", self.names), ("rates", self.rates)):
            if given is not None and len(given) != len(tasks):
                raise ConfigurationError(
                    f"Mixture.{what} must have one value for each of the {len(tasks)} tasks, and is {given!r}"
                )
        if len(set(self.task_names)) < len(tasks):
            raise ConfigurationError(
                f"the tasks of a mixture need different names, and have {', '.join(self.task_names)}; "
                "Mixture.names gives others"
            )
        if self.rates is not None and not all(np.isfinite(rate) and rate > 0 for rate in self.rates):
            raise ConfigurationError(f"Mixture.rates must be positive numbers, and are {self.rates!r}")
        if self.rates is not None and (self.temperature != 1.0 or self.largest_size is not None):
            raise ConfigurationError(
                "Mixture.temperature and largest_size make rates from the tasks' sizes; leave out Mixture.rates"
            )
        if not self.temperature > 0 or (self.largest_size is not None and self.largest_size < 1):
            given = f"{self.temperature} and {self.largest_size}"
            raise ConfigurationError(f"Mixture.temperature and largest_size must be positive, and are {given}")

    def __str__(self) -> str:
        lines = (
            f"  {share / BLOCK:.2%} {name}: {task}"
            for share, name, task in zip(self._shares.tolist(), self.task_names, self.tasks, strict=True)
        )
        return "\n".join((f"a mixture of {len(self.tasks)} tasks:", *lines))

    @property
    def name(self) -> str:
        return " and ".join(self.task_names)

    @property
    def task_names(self) -> tuple[str, ...]:
        return tuple(self.names) if self.names is not None else tuple(task.name for task in self.tasks)

    @property
    def tokens_per_example(self) -> int | None:
        return self.tasks[0].tokens_per_example

    @property
    def vocabulary(self) -> Vocabulary | None:
        return self.tasks[0].vocabulary

    def inputs(self, batch: mtf.Dimension) -> dict[str, mtf.TensorSpec]:
        return self.tasks[0].inputs(batch)

    def training_batches(self, batch_size: int, seed: int, position: Position | None = None) -> ShuffledBatches:
        return self.training_rows(slice(0, batch_size), batch_size, seed, position)

    def training_rows(
        self, rows: slice, batch_size: int, seed: int, position: Position | None = None
    ) -> ShuffledBatches:
        specs = self.inputs(mtf.Dimension("batch", batch_size))

        def features_of(indices: tf.Tensor, places: tf.Tensor) -> Batch:
            arrays = tf.numpy_function(made, [indices, places], [spec.dtype for spec in specs.values()])
            for array, spec in zip(arrays, specs.values(), strict=True):
                array.set_shape([indices.shape[0], *spec.shape.to_integer_list[1:]])
            return dict(zip(specs, arrays, strict=True))

        def made(indices: np.ndarray, places: np.ndarray) -> list[np.ndarray]:
            features = self._examples(indices, places, seed)
            return [features[name] for name in specs]

        return ShuffledBatches(
            features_of, self.num_training_examples, batch_size, seed, position, rows, self._index_at(seed)
        )

    def evaluation_batches(self, batch_size: int) -> Iterator[Batch]:
        for task in self.tasks:
            yield from task.evaluation_batches(batch_size)

    def evaluation_rows(self, rows: slice, batch_size: int) -> Iterator[Batch]:
        for task in self.tasks:
            yield from task.evaluation_rows(rows, batch_size)

    def parts_of_evaluation(self, batch_size: int) -> Iterator[str]:
        """Yields the name of the task that each batch of an evaluation belongs to."""
        for name, task in zip(self.task_names, self.tasks, strict=True):
            yield from itertools.repeat(name, sum(1 for _ in task.evaluation_rows(slice(0, 0), batch_size)))

    @property
    def num_training_examples(self) -> int:
        return int(self._sizes.sum())

    def fingerprint(self) -> Fingerprint:
        """Returns the tasks' shares, and facts about all tasks that have a fingerprint, as
        `TaskOfKnownData.fingerprint`.
        """
        found = {name: fingerprint_of(task) for name, task in zip(self.task_names, self.tasks, strict=True)}
        of_tasks = {f"{name}: {part}": facts for name, parts in found.items() for part, facts in (parts or {}).items()}
        source = "Mixture.temperature and largest_size" if self.rates is None else "Mixture.rates"
        shares = zip(self.task_names, self._shares.tolist(), strict=True)
        order = {f"share of {name}": f"{share / BLOCK:.4%}" for name, share in shares}
        return {**of_tasks, "order of the tasks": {SOURCE: source, **order}}

    def num_bytes(self, features: Mapping[str, np.ndarray | tf.Tensor]) -> int | None:
        return self.tasks[0].num_bytes(features)

    @functools.cached_property
    def _sizes(self) -> np.ndarray:
        """The number of examples of each task to train on, [tasks] int64."""
        return np.array([task.num_training_examples for task in self.tasks], np.int64)

    @functools.cached_property
    def _shares(self) -> np.ndarray:
        """The number of places of a block that each task has, [tasks] int64, at least one."""
        if self.rates is not None:
            rates = np.array(self.rates, np.float64)
        else:
            counted = self._sizes if self.largest_size is None else np.minimum(self._sizes, self.largest_size)
            rates = (counted / counted.max()) ** (1 / self.temperature)  # the power of a size could become infinite
        borders = np.rint(np.cumsum(rates) / rates.sum() * (BLOCK - len(rates))).astype(np.int64)
        return np.diff(borders, prepend=0) + 1

    def _index_at(self, seed: int) -> Callable[[tf.Tensor], tf.Tensor]:
        """Returns a function from a place, [] int64, to the number of the example there, counted through all tasks."""
        tasks = np.repeat(np.arange(len(self.tasks)), self._shares)
        tasks = tasks[np.argsort(Uniforms(seed, 0).draw(BLOCK), kind="stable")]
        turns = np.zeros(BLOCK, np.int64)
        for number, share in enumerate(self._shares.tolist()):
            turns[tasks == number] = np.arange(share)
        # For each place in a block: how often its task is taken before it, and in a whole block; and its examples.
        turns_before, turns_in_block = tf.constant(turns), tf.constant(self._shares[tasks])
        first_examples = tf.constant((np.cumsum(self._sizes) - self._sizes)[tasks])
        sizes = tf.constant(self._sizes[tasks])

        def index_at(place: tf.Tensor) -> tf.Tensor:
            block, own = place // BLOCK, place % BLOCK
            turn = block * tf.gather(turns_in_block, own) + tf.gather(turns_before, own)
            return tf.gather(first_examples, own) + shuffled(turn, tf.gather(sizes, own), seed)

        return index_at

    def _examples(self, indices: np.ndarray, places: np.ndarray, seed: int) -> dict[str, np.ndarray]:
        first_examples = np.cumsum(self._sizes) - self._sizes
        of_task = np.searchsorted(first_examples, indices, side="right") - 1
        features: dict[str, np.ndarray] = {}
        for number, task in enumerate(self.tasks):
            (rows,) = np.nonzero(of_task == number)
            if number and not len(rows):
                continue
            made = task.training_examples(indices[rows] - first_examples[number], places[rows], seed)
            for name, array in made.items():
                features.setdefault(name, np.zeros([len(indices), *array.shape[1:]], array.dtype))[rows] = array
        return features

    def _check_features(self) -> None:
        batch = mtf.Dimension("batch", 1)
        first = self.tasks[0].inputs(batch)
        for task in self.tasks[1:]:
            inputs = task.inputs(batch)
            if {name: (x.shape, x.dtype) for name, x in inputs.items()} != {
                name: (x.shape, x.dtype) for name, x in first.items()
            }:
                raise ConfigurationError(
                    OTHER_FEATURES.format(
                        first=self.tasks[0].name,
                        other=task.name,
                        first_inputs=_listed(first),
                        other_inputs=_listed(inputs),
                    )
                )
            if _fingerprint(task) != _fingerprint(self.tasks[0]):
                raise ConfigurationError(
                    f'the tasks of a mixture must have the same vocabulary, but those of "{task.name}" and '
                    f'"{self.tasks[0].name}" differ'
                )


def _fingerprint(task: TaskByExamples) -> str | None:
    return None if task.vocabulary is None else task.vocabulary.fingerprint


def _listed(inputs: Mapping[str, mtf.TensorSpec]) -> str:
    return ", ".join(f"{name} {list(spec.shape)[1:]} {spec.dtype.name}" for name, spec in inputs.items())
