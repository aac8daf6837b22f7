"""The programs of a training, which share their variables."""

from __future__ import annotations

from collections.abc import Callable

import meshtf as mtf
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.train.evaluation import Evaluation, evaluate
from meshtf.train.step_programs import evaluation_step, training_step
from meshtf.train.training import Training


class Trainer:
    """A training's two programs, built, lowered and checked, as are its callbacks; nothing has run.

    Raises:
      ConfigurationError: a callback that does not fit the training.
      LayoutError: the layout does not fit the mesh or the program, or has a rule for a dimension that is not there.
    """

    def __init__(self, training: Training, mesh_impl: MeshImpl | None = None) -> None:
        self.training = training
        self.mesh_impl = mesh_impl or mesh_of(training)
        self.train_step = training_step(training, self.mesh_impl)
        self.evaluation_step = evaluation_step(training, self.mesh_impl, self.variables)
        for callback in training.callbacks:
            callback.check(self)

    @property
    def variables(self) -> mtf.VariableStore:
        return self.train_step.variables

    @property
    def programs(self) -> tuple[mtf.Function, mtf.Function]:
        return self.train_step, self.evaluation_step

    def evaluate(self, is_stopped: Callable[[], bool] = lambda: False) -> Evaluation | None:
        """Every metric's mean over the held-out examples; None if it was stopped before the end."""
        return evaluate(self.training.task, self.evaluation_step, self.training.batch_size, is_stopped)


def mesh_of(training: Training, devices: tuple[str, ...] | None = None) -> mtf.SpmdMeshImpl:
    """The mesh that a training asks for, on these devices, or on the first that there are."""
    return mtf.SpmdMeshImpl(training.mesh_shape, training.layout, devices, options=training.mesh_options)
