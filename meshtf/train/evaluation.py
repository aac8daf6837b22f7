"""Exact means over held-out examples."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

import meshtf as mtf
from meshtf.errors import IndexRangeError, MeshtfError, NonFiniteError, counted
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.train._metric_sums import MetricError
from meshtf.train._ranked_scores import SCORES, RankedScores
from meshtf.train.batches.feature_checks import check_features, first_non_finite_feature
from meshtf.train.batches.own_rows import CountedRows, own_rows
from meshtf.train.batches.part_batches import PartBatches
from meshtf.train.configuration import ConfigurationError
from meshtf.train.decoding.step_decoder import predicts_first_token
from meshtf.train.step_programs import DENOMINATORS, LOSS, NUMERATORS, evaluation_program
from meshtf.train.task import WEIGHTS, Batch, Task, TaskByRows, TaskOfParts
from meshtf.train.training import Model, ModelOfWholeEvaluations, Training

BITS_PER_BYTE = "bits_per_byte"

_NOTHING_HELD_OUT = """\
the task "{task}" holds out no example, so nothing can be evaluated; let it hold out at least one."""

_NOTHING_COUNTS = """\
the loss has no mean on {count} of the task "{task}": the model gives all of them the weight 0."""

_NOT_FINITE = """\
the loss on held-out examples is {loss}: it becomes so among the examples {first:,} to {last:,} of the task "{task}", \
counted from 0.
{feature}"""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Weighted means over held-out examples, each counted once. For text "bits_per_byte" is among them.

    Attributes:
      num_examples: how many examples were counted.
      means: the means by name. A metric whose weights are all 0 has none.
      vectors: means of shape [n] or [layers, n]. An element whose weights are all 0 is NaN.
      uncounted: the metrics whose weights are all 0.
      problem: the reason why the loss is meaningless, or None.
      sums: the numerator and the denominator of each mean, float64. For "accuracy" they are exact counts: how many
        examples are right, and how many there are. An area under the curve has no such sums.
      seconds: how long the evaluation took.
    """

    num_examples: int
    means: dict[str, float]
    vectors: dict[str, np.ndarray] = dataclasses.field(default_factory=dict, compare=False)
    uncounted: tuple[str, ...] = ()
    problem: MeshtfError | None = dataclasses.field(default=None, compare=False)
    sums: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict, compare=False)
    seconds: float = dataclasses.field(default=0.0, compare=False)

    def check(self) -> None:
        """Raises the problem, if there is one.

        Raises:
          NonFiniteError: if the loss is a NaN or an infinity. The message names the examples.
          MetricError: if every weight of the loss is 0.
        """
        if self.problem is not None:
            raise self.problem

    def __str__(self) -> str:
        means = [f"{name} {value:.4f}" for name, value in self.means.items()]
        uncounted = [f"{name} without a mean, since all its weights are 0" for name in self.uncounted]
        return f"{', '.join([*means, *uncounted])} (on {counted(self.num_examples, 'held-out example')})"


class Evaluator:
    """Evaluates a model on the held-out examples of its task.

    Attributes:
      step: the program for a batch. Padding in the last batch has weight 0.

    Raises:
      LayoutError: if the layout does not fit the program.
    """

    def __init__(self, training: Training, mesh_impl: MeshImpl, variables: mtf.VariableStore | None = None) -> None:
        program = evaluation_program(training, mesh_impl, variables)
        self.step = program.step
        self._training = training
        self._parts = PartBatches(training, mesh_impl, program) if program.of_whole_batch else None

    def with_training(self, training: Training) -> Evaluator:
        """Returns the same program for the held-out examples of another task with the same inputs."""
        evaluator = copy.copy(self)
        evaluator._training = training
        return evaluator

    def check(self) -> None:
        """Checks the held-out examples before anything is trained.

        Raises:
          ConfigurationError: if there is none; or if some metric describes a whole batch, the last batch is not full,
            and the model cannot be built for so few examples.
          FeedError: if a feature is missing, or has another shape or type than the task says.
        """
        task, num_batches = self._training.task, 0
        for features in self._batches():
            if not num_batches:
                check_features(f'the held-out examples of the task "{task.name}"', self.step, features)
            num_batches += 1
            if self._parts is None:
                break
            self._program_for(features)
        if not num_batches:
            raise ConfigurationError(_NOTHING_HELD_OUT.format(task=task.name))

    def warm_up(self) -> None:
        """Runs the program on the first batch, so that the next evaluation's time excludes compilation."""
        for features in itertools.islice(self._batches(), 1):
            program, fed = self._program_for(features)
            program(**fed)

    def evaluate(self, is_stopped: Callable[[], bool] = lambda: False) -> Evaluation | None:
        """Returns every metric's mean over the held-out examples, for any batch size, or None if it was stopped before
        the end. If it was stopped, another evaluation draws the random bits that this one would have drawn.

        Numerators and denominators are summed over all batches in float64, before they are divided. The weight of a
        metric that describes a whole batch is the batch's number of examples. If there is such a metric, the last
        batch is evaluated without padding.

        Raises:
          IndexRangeError: if an id or a label is outside of its range. The message names the batch, the feature and the
            place.
        """
        began, runs_before = time.perf_counter(), self._num_runs
        task, counted = self._training.task, self._counted_rows
        sums = _Sums(task, counted.rows, self._whole_batch, self._training.model)
        parts = task.parts_of_evaluation(self._training.batch_size) if isinstance(task, TaskOfParts) else None
        for number, features in enumerate(self._batches(), 1):
            if is_stopped():
                self._count_runs_from(runs_before)
                return None
            program, fed = self._program_for(features)
            try:
                results = program(**fed)
            except IndexRangeError as error:
                raise IndexRangeError(f"batch {number} of the held-out examples: {error}") from None
            sums.add(features, results, number, None if parts is None else next(parts))
        found = sums.evaluation(counted.summed(sums.num_bytes))
        return dataclasses.replace(found, seconds=time.perf_counter() - began)

    @property
    def _num_runs(self) -> int:
        """How often the program has run, if its random bits depend on that; else 0."""
        variables, name = self.step.variables, f"{self.step.name}/step"
        return int(variables[name]) if name in variables else 0

    def _count_runs_from(self, number: int) -> None:
        variables, name = self.step.variables, f"{self.step.name}/step"
        if name in variables:
            variables[name] = number

    @functools.cached_property
    def _counted_rows(self) -> CountedRows:
        return CountedRows.of(self.step, self._training.batch)

    def _batches(self) -> Iterable[Batch]:
        """Returns the held-out examples. If the task can, each batch has only the rows that this process needs.

        A batch that is not full may need a program of its own, whose cores read other rows. Then all rows are made.
        """
        task, size = self._training.task, self._training.batch_size
        rows = own_rows(self.step, self._training.batch)
        if rows == slice(0, size) or self._parts is not None or not isinstance(task, TaskByRows):
            return task.evaluation_batches(size)
        return task.evaluation_rows(rows, size)

    def _whole_batch(self, number: int) -> Batch:
        """Returns a batch of the held-out examples by its number, from 1."""
        return next(
            itertools.islice(self._training.task.evaluation_batches(self._training.batch_size), number - 1, None)
        )

    def _program_for(self, features: Batch) -> tuple[mtf.Function, Batch]:
        """Returns the program for a batch, and the features to feed it."""
        is_example = np.asarray(features[WEIGHTS]) != 0
        if self._parts is None or is_example.all() or not is_example.any():
            return self.step, features
        (examples,) = np.nonzero(is_example)
        program = self._parts.program(len(examples))
        return program, {name: np.asarray(value)[examples] for name, value in features.items()}


class _Sums:
    """The numerators and denominators so far.

    Args:
      task: the task that the examples are from.
      counted: an index of the rows of each batch whose bytes this process counts.
      whole_batch: returns a batch by its number, with all of its rows.
      model: the model, which may be a `ModelOfWholeEvaluations`.
    """

    def __init__(
        self, task: Task, counted: slice | np.ndarray, whole_batch: Callable[[int], Batch], model: Model
    ) -> None:
        self._model = model
        self._task, self._counted, self._whole_batch = task, counted, whole_batch
        self._sums: dict[str, dict[str, np.ndarray]] = {NUMERATORS: {}, DENOMINATORS: {}}
        self._sums_of_parts: dict[str, dict[str, dict[str, float]]] = {}
        self._scores = RankedScores()
        self._num_examples = 0
        self.num_bytes = 0
        self._not_finite: str | None = None

    def add(self, features: Batch, results: Mapping[str, Mapping[str, Any]], number: int, part: str | None) -> None:
        """Adds the results of a batch by its number. `part`: the part of the task that it belongs to, or None."""
        self._scores.add(results.get(SCORES, {}), np.asarray(features[WEIGHTS]))
        results = {kind: results[kind] for kind in (NUMERATORS, DENOMINATORS)}
        if part is not None:
            of_part = self._sums_of_parts.setdefault(part, {NUMERATORS: {}, DENOMINATORS: {}})
            for kind, values in results.items():
                for name, value in values.items():
                    if not np.ndim(value):
                        of_part[kind][name] = of_part[kind].get(name, 0.0) + float(np.asarray(value, np.float64))
        for kind, values in results.items():
            for name, value in values.items():
                self._sums[kind][name] = self._sums[kind].get(name, 0.0) + np.asarray(value, np.float64)
        count = round(float(np.sum(features[WEIGHTS])))
        if self._not_finite is None and not np.all(np.isfinite(self._sums[NUMERATORS].get(LOSS, 0.0))):
            self._not_finite = self._where_not_finite(number, count)
        self._num_examples += count
        counted = {name: np.asarray(value)[self._counted] for name, value in features.items()}
        if not predicts_first_token(self._model):
            counted = _predicted(counted)
        self.num_bytes += self._task.num_bytes(counted) or 0

    def _where_not_finite(self, number: int, count: int) -> str:
        first, loss = self._num_examples, self._sums[NUMERATORS][LOSS]
        feature = first_non_finite_feature(self._whole_batch(number), first)
        last = first + count - 1
        return _NOT_FINITE.format(loss=loss, first=first, last=last, task=self._task.name, feature=feature)

    def evaluation(self, num_bytes: int) -> Evaluation:
        """Returns the means. `num_bytes`: the bytes of all text in all batches."""
        numerators, denominators = self._sums[NUMERATORS], self._sums[DENOMINATORS]
        counted = {name: weight for name, weight in denominators.items() if np.any(weight)}
        with np.errstate(divide="ignore", invalid="ignore"):
            found = {name: np.where(w, numerators[name] / w, np.nan) for name, w in counted.items()}
        means = {name: float(x) for name, x in found.items() if not np.ndim(x)}
        if num_bytes:
            means[BITS_PER_BYTE] = float(numerators[LOSS]) / math.log(2) / num_bytes
        areas = self._scores.areas()
        means |= {name: area for name, area in areas.items() if not math.isnan(area)} | self._means_of_parts()
        vectors = {name: x for name, x in found.items() if np.ndim(x)}
        if isinstance(self._model, ModelOfWholeEvaluations):
            means |= self._model.held_out_metrics(vectors)
        uncounted = tuple(name for name in (*denominators, *areas) if name not in {**counted, **means})
        summed = {name: (float(numerators[name]), float(w)) for name, w in counted.items() if name in means}
        return Evaluation(self._num_examples, means, vectors, uncounted, self._problem(uncounted), summed)

    def _means_of_parts(self) -> dict[str, float]:
        return {
            f"{part}/{name}": sums[NUMERATORS][name] / weight
            for part, sums in self._sums_of_parts.items()
            for name, weight in sums[DENOMINATORS].items()
            if weight
        }

    def _problem(self, uncounted: tuple[str, ...]) -> MeshtfError | None:
        task = self._task
        if not self._num_examples:
            return ConfigurationError(_NOTHING_HELD_OUT.format(task=task.name))
        if self._not_finite is not None:
            return NonFiniteError(self._not_finite)
        if LOSS in uncounted:
            return MetricError(
                _NOTHING_COUNTS.format(count=counted(self._num_examples, "held-out example"), task=task.name)
            )
        return None


def _predicted(features: Batch) -> Batch:
    """The features, with a weight of 0 for the first token of each text, which nothing predicts."""
    weights = features.get("targets_weights")
    if weights is None:
        return features
    positions = features.get("targets_position", np.arange(weights.shape[-1]))
    return {**features, "targets_weights": np.where(positions > 0, weights, 0.0)}
