"""The programs of a training, which share their variables."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import numpy as np

import meshtf as mtf
from meshtf.checkpoint import WarmStart
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.train._ranked_scores import SCORES
from meshtf.train.batches.feature_checks import check_features
from meshtf.train.batches.own_rows import own_rows
from meshtf.train.data.shuffled_batches import READY_BATCHES
from meshtf.train.evaluation import BITS_PER_BYTE, Evaluation, Evaluator
from meshtf.train.initial_checkpoint import initial_checkpoint_of
from meshtf.train.step_programs import DENOMINATORS, LOSS, NUMERATORS, training_step
from meshtf.train.task import WEIGHTS, Batch, Batches, Position, TaskByRows, TaskOfParts
from meshtf.train.training import ModelOfWholeEvaluations, Training


class Trainer:
    """A training's two programs: built, lowered and checked, but not run. Its callbacks are checked as well.

    Raises:
      ConfigurationError: if a callback does not fit the training.
      LayoutError: if the layout does not fit the mesh or the program, or has a rule for a missing dimension.
    """

    def __init__(self, training: Training, mesh_impl: MeshImpl | None = None) -> None:
        self.training = training
        self.mesh_impl = mesh_impl or mesh_of(training)
        self.train_step = training_step(training, self.mesh_impl)
        self._evaluator = Evaluator(training, self.mesh_impl, self.variables)
        for callback in training.callbacks:
            callback.check(self)

    @property
    def variables(self) -> mtf.VariableStore:
        return self.train_step.variables

    @property
    def evaluation_step(self) -> mtf.Function:
        return self._evaluator.step

    @property
    def programs(self) -> tuple[mtf.Function, mtf.Function]:
        return self.train_step, self.evaluation_step

    def with_training(self, training: Training) -> Trainer:
        """Returns the same programs and variables for a training with another task, length or callbacks.

        Model, batch size and mesh must be the same.
        """
        trainer = copy.copy(self)
        trainer.training, trainer._evaluator = training, self._evaluator.with_training(training)
        return trainer

    def check(self) -> None:
        """Checks the free memory, the first batch, and the held-out examples.

        Raises:
          ConfigurationError: if there is no example to train on, or none held out.
          DeviceError: if the machine has too little memory for the programs.
          FeedError: if a feature is missing, or has another shape or type than the task says.
        """
        inputs = self.training.task.inputs(self.training.batch).values()
        batch_bytes = sum(spec.shape.size * spec.dtype.size for spec in inputs)
        for program in self.programs:
            program.check_memory(besides=READY_BATCHES * batch_bytes)
        batch = next(self.batches())
        check_features(f'the training examples of the task "{self.training.task.name}"', self.train_step, batch)
        self._evaluator.check()

    def begin(self) -> WarmStart | None:
        """Restores the initial checkpoint, if the training has one. Returns which tensors it restored, or None.

        Raises:
          CheckpointError: if the initial checkpoint is missing, damaged, or of another model.
        """
        initial = initial_checkpoint_of(self.training.initial_checkpoint)
        return None if initial is None else initial.restore(*self.programs)

    def batches(self, position: Position | None = None) -> Batches:
        """Returns the task's batches to train on, from the start or from a position.

        In a cluster, each process makes only the rows that its cores read, if the task can. The other rows are 0.

        Raises:
          ConfigurationError: if the position belongs to other data.
        """
        training, task = self.training, self.training.task
        if self._makes_all_rows or not isinstance(task, TaskByRows):
            return task.training_batches(training.batch_size, training.seed, position)
        return task.training_rows(self._rows, training.batch_size, training.seed, position)

    def whole_batch(self, features: Batch, position: Position) -> Batch:
        """Returns a batch with all of its rows, even if this process has made only some. `position`: the position
        before the batch.
        """
        training, task = self.training, self.training.task
        if self._makes_all_rows or not isinstance(task, TaskByRows):
            return features
        return next(task.training_batches(training.batch_size, training.seed, position))

    @functools.cached_property
    def _rows(self) -> slice:
        """The rows of a training batch that the cores of this process read."""
        return own_rows(self.train_step, self.training.batch)

    @property
    def _makes_all_rows(self) -> bool:
        return self._rows == slice(0, self.training.batch_size)

    def held_out_metrics(self) -> list[str]:
        """Returns the names of the metrics that an evaluation has, those of `Evaluation.means`."""
        results, model, task = self.evaluation_step.results, self.training.model, self.training.task
        # Only the task knows whether its targets stand for text: one of classes may have a vocabulary as well.
        specs = task.inputs(mtf.Dimension(self.training.batch.name, 1))
        zeros = {name: np.zeros(spec.shape.to_integer_list, spec.dtype.as_numpy_dtype) for name, spec in specs.items()}
        shapes = {name: numerator.shape for name, numerator in results[NUMERATORS].items()}
        scalars = [name for name, shape in shapes.items() if not shape.ndims]
        found = [*scalars, *results.get(SCORES, {}), *([] if task.num_bytes(zeros) is None else [BITS_PER_BYTE])]
        if isinstance(model, ModelOfWholeEvaluations):
            # Only the model knows the names. Any vectors do, but from zeros it may make no metric.
            vectors = {name: np.ones(shape.to_integer_list) for name, shape in shapes.items() if shape.ndims}
            found += model.held_out_metrics(vectors)
        if isinstance(task, TaskOfParts):
            parts = dict.fromkeys(task.parts_of_evaluation(self.training.batch_size))
            found += [f"{part}/{name}" for part in parts for name in scalars]
        return found

    def counts(self, features: Batch) -> bool:
        """Tells whether the loss has a weight other than 0 in a full batch."""
        sums = self.evaluation_step(**features, **{WEIGHTS: np.ones(self.training.batch_size, np.float32)})
        return bool(np.any(sums[DENOMINATORS][LOSS]))

    def evaluate(self, is_stopped: Callable[[], bool] = lambda: False) -> Evaluation | None:
        """Returns every metric's mean over the held-out examples, or None if it was stopped before the end."""
        return self._evaluator.evaluate(is_stopped)


def mesh_of(training: Training, devices: tuple[str, ...] | None = None) -> mtf.SpmdMeshImpl:
    """Returns the mesh of a training, on these devices or on the first available ones."""
    return mtf.SpmdMeshImpl(training.mesh_shape, training.layout, devices, options=training.mesh_options)
