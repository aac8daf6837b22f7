"""The programs of a training, which share their variables."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import numpy as np

import meshtf as mtf
from meshtf.checkpoint import WarmStart
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.train.batches.feature_checks import check_features
from meshtf.train.batches.own_rows import own_rows
from meshtf.train.data.shuffled_batches import READY_BATCHES
from meshtf.train.evaluation import Evaluation, Evaluator
from meshtf.train.initial_checkpoint import initial_checkpoint_of
from meshtf.train.step_programs import DENOMINATORS, LOSS, training_step
from meshtf.train.task import WEIGHTS, Batch, Batches, Position, TaskByRows
from meshtf.train.training import Training


class Trainer:
    """A training's two programs: built, lowered and checked, as are its callbacks. Nothing has run.

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
        """Returns the same programs and variables for a training of another task, length or callbacks.

        Model, batch size and mesh must be the same.
        """
        trainer = copy.copy(self)
        trainer.training, trainer._evaluator = training, self._evaluator.with_training(training)
        return trainer

    def check(self) -> None:
        """Checks the memory that is left, the first batch, and the held-out examples.

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
        """Gives the variables their first values. Returns the restored tensors, if an initial checkpoint has them.

        Raises:
          CheckpointError: if the initial checkpoint is missing, damaged, or of another model.
        """
        initial = initial_checkpoint_of(self.training.initial_checkpoint)
        return None if initial is None else initial.restore(*self.programs)

    def batches(self, position: Position | None = None) -> Batches:
        """Returns the task's batches to train on, from the start or from a position.

        In a cluster, each process makes only the rows that its cores read, if the task can. The other rows are 0.

        Raises:
          ConfigurationError: if the position is in other data.
        """
        training, task = self.training, self.training.task
        if self._makes_all_rows or not isinstance(task, TaskByRows):
            return task.training_batches(training.batch_size, training.seed, position)
        return task.training_rows(self._rows, training.batch_size, training.seed, position)

    def whole_batch(self, features: Batch, position: Position) -> Batch:
        """Returns a batch with all of its rows, of which this process may have made only some. `position`: the
        one before it.
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

    def counts(self, features: Batch) -> bool:
        """Tells whether anything in a full batch counts for the loss: whether some weight of the loss is not 0."""
        sums = self.evaluation_step(**features, **{WEIGHTS: np.ones(self.training.batch_size, np.float32)})
        return bool(np.any(sums[DENOMINATORS][LOSS]))

    def evaluate(self, is_stopped: Callable[[], bool] = lambda: False) -> Evaluation | None:
        """Returns every metric's mean over the held-out examples, or None if it was stopped before the end."""
        return self._evaluator.evaluate(is_stopped)


def mesh_of(training: Training, devices: tuple[str, ...] | None = None) -> mtf.SpmdMeshImpl:
    """Returns the mesh that a training asks for, on these devices, or on the first devices there are."""
    return mtf.SpmdMeshImpl(training.mesh_shape, training.layout, devices, options=training.mesh_options)
