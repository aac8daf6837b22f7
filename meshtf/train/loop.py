"""The training loop."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Protocol

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import LayoutWarning
from meshtf.train.configuration import ConfigurationError
from meshtf.train.metrics import MetricsLog
from meshtf.train.progress import Speedometer, StepReport, progress_display
from meshtf.train.task import WEIGHTS, Task, evaluation_batches, num_examples, training_batches

LOG_EVERY = 10  # steps


class Model(Protocol):
    """What can be trained: a function from a batch's features to numbers for each example."""

    def metrics(self, **features: mtf.Tensor) -> dict[str, mtf.Tensor]:
        """Features [batch, ...] -> metrics by name, each [batch]; "loss" is among them."""
        ...


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class Training:
    """What to train, how, and on which mesh.

    Attributes:
      model: turns features into metrics, "loss" among them.
      task: the examples.
      optimizer: applied to the mean of the loss over the batch.
      mesh_shape: axes and sizes, as "rows:2;cols:4".
      layout: which dimension is split over which axis, as "batch:rows;hidden:cols".
      batch_size: size of the dimension `batch`.
      num_steps: batches to train on.
      seed: of the program and of the order of the examples.
    """

    model: Model
    task: Task
    optimizer: mtf.optimize.Optimizer
    mesh_shape: str
    layout: str
    batch_size: int
    num_steps: int
    seed: int = 0

    def __post_init__(self) -> None:
        self._check_is("model", callable(getattr(self.model, "metrics", None)) and not isinstance(self.model, type))
        self._check_is("task", isinstance(self.task, Task))
        self._check_is("optimizer", isinstance(self.optimizer, mtf.optimize.Optimizer))
        for name, least in (("batch_size", 1), ("num_steps", 1), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise ConfigurationError(f"Training.{name} must be an integer, {least} or more, and is {value!r}")
        for name in ("mesh_shape", "layout"):
            if not isinstance(getattr(self, name), str):
                raise ConfigurationError(f"Training.{name} must be a string, and is {getattr(self, name)!r}")
        if self.batch_size > num_examples(self.task.train):
            raise ConfigurationError(
                f"Training.batch_size is {self.batch_size}, more than there are examples ({self.task})"
            )

    def _check_is(self, what: str, holds: bool) -> None:
        if not holds:
            raise ConfigurationError(
                f"Training.{what} is no {what}: {getattr(self, what)!r}; in gin @Name() makes one, parentheses included"
            )


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Means over held-out examples, each counted once."""

    num_examples: int
    means: dict[str, float]

    def __str__(self) -> str:
        means = ", ".join(f"{name} {value:.4f}" for name, value in self.means.items())
        return f"{means} (on {self.num_examples} held-out examples)"


class Trainer:
    """The two programs of a training, built, lowered and checked; they share their variables.

    Raises:
      LayoutError: the layout does not fit the mesh or the program, or has a rule for a dimension that is not there.
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self.batch = mtf.Dimension("batch", training.batch_size)
        self._mesh_impl = mtf.SpmdMeshImpl(training.mesh_shape, training.layout)
        self.train_step = self._build_train_step()
        self.evaluation_step = self._build_evaluation_step()

    @property
    def variables(self) -> mtf.VariableStore:
        return self.train_step.variables

    def train(self, log: MetricsLog) -> None:
        """Takes every step of the training."""
        training = self.training
        speedometer = Speedometer(training.batch_size)
        batches = training_batches(training.task.train, training.batch_size, training.seed).take(training.num_steps)
        with progress_display(training.num_steps) as display:
            for step, features in enumerate(batches, start=1):
                loss = float(self.train_step(**features))
                report = StepReport(step, loss, speedometer.count_step())
                display.show(report)
                if step % LOG_EVERY == 0 or step in (1, training.num_steps):
                    log.write(step, {"loss": loss, "examples_per_second": round(report.examples_per_second, 1)})

    def evaluate(self) -> Evaluation:
        """Every metric's mean over the held-out examples."""
        held_out = self.training.task.held_out
        totals: dict[str, float] = {}
        for features in evaluation_batches(held_out, self.training.batch_size):
            for name, value in self.evaluation_step(**features).items():
                totals[name] = totals.get(name, 0.0) + float(value)
        count = num_examples(held_out)
        return Evaluation(count, {name: total / count for name, total in totals.items()})

    def _build_train_step(self) -> mtf.Function:
        training = self.training

        def train_step(**features: mtf.Tensor) -> mtf.Tensor:
            loss = mtf.reduce_mean(training.model.metrics(**features)["loss"])
            training.optimizer.minimize(loss)
            return loss

        with warnings.catch_warnings():
            # A misspelt rule would only make training slower, for days and unseen.
            warnings.simplefilter("error", LayoutWarning)
            return mtf.function(
                train_step, self._mesh_impl, inputs=training.task.inputs(self.batch), seed=training.seed
            )

    def _build_evaluation_step(self) -> mtf.Function:
        def evaluation_step(weights: mtf.Tensor, **features: mtf.Tensor) -> dict[str, mtf.Tensor]:
            metrics = self.training.model.metrics(**features)
            # Chosen, not multiplied: a metric may be infinite on padding.
            is_example = mtf.greater(weights, 0.0)
            return {name: mtf.reduce_sum(mtf.where(is_example, values, 0.0)) for name, values in metrics.items()}

        weights = mtf.TensorSpec(mtf.Shape([self.batch]), tf.float32)
        inputs = {WEIGHTS: weights, **self.training.task.inputs(self.batch)}
        with warnings.catch_warnings():
            # It need not have every dimension of the training step, whose rules have been checked.
            warnings.simplefilter("ignore", LayoutWarning)
            return mtf.function(
                evaluation_step, self._mesh_impl, inputs=inputs, variables=self.variables, seed=self.training.seed
            )
