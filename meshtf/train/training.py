"""A training, as gin describes it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import gin
import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.divisors import divisors
from meshtf.errors import MeshtfError, counted, nearest
from meshtf.field_checks import what_it_lacks
from meshtf.layout import LayoutLike
from meshtf.mesh_impl.mesh_options import MeshOptionFields
from meshtf.mesh_impl.mesh_shape_rule import MeshShapeRule
from meshtf.quantization import Quantization, QuantizationAware, quantization_aware, quantized_weights
from meshtf.train.callback import Callback
from meshtf.train.configuration import ConfigurationError, configuration_errors
from meshtf.train.initial_checkpoint import InitialCheckpoint, initial_checkpoint_of
from meshtf.train.task import Task

Metric: TypeAlias = "mtf.Tensor | tuple[mtf.Tensor, mtf.Tensor] | Mapping[str, mtf.Tensor]"
"""A tensor [batch, ...] stands for the mean of its elements, and a pair (values, weights) for their weighted mean.

The two tensors of a pair have equal shapes. A metric without `batch` describes the batch as a whole: a scalar, or a
vector [n] or [layers, n], such as each expert's load.

A mapping {"scores": scores, "labels": labels}, both [batch], stands for the area under the curve: among all pairs of a
positive and a negative example, the share in which the positive one has the larger score. Equal scores count half. An
evaluation keeps all scores, so the area is exact over all batches.
"""

LOSS = "loss"
"""The metric that training minimizes. It is a mean."""

_AT = "\n  at "  # stands before a source line, here one of meshtf's

_ACTIVATION_DTYPES = {"float32": tf.float32, "bfloat16": tf.bfloat16}


class Model(Protocol):
    """A model that can be trained: a function from a batch's features to metrics."""

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Metric]:
        """Returns metrics by name, from features [batch, ...] by name. "loss" is among the metrics."""
        ...


@runtime_checkable
class ModelOfWholeEvaluations(Model, Protocol):
    """A model with metrics that are not means over examples, such as the average precision of a detector."""

    def held_out_metrics(self, vectors: dict[str, np.ndarray]) -> dict[str, float]:
        """Returns metrics of all held-out examples together, from the means of the model's vectors over them.

        It may remove vectors that should not be shown.
        """
        ...


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class Training(MeshOptionFields):
    """A training: its model, its task, its optimizer, its mesh, and the times at which to write results.

    The options of its mesh are parameters of its own: `mtf.MeshOptions` describes them. The value None, which older
    configurations may have, means the default of an option. In gin a layout is text.

    Attributes:
      model: turns features into metrics, with "loss" among them.
      task: the examples.
      optimizer: the optimizer, applied to the mean of the loss over the batch.
      mesh_shape: axes and sizes, as "rows:2;cols:4". One size may be `*`, as in "data:*;model:2": as many as there are
        devices for.
      layout: which dimension is split over which axis, as "batch:rows;hidden:cols".
      batch_size: size of the dimension `batch`.
      num_steps: how many batches to train on.
      seed: the seed of the program and of the order of the examples.
      num_microbatches: the number of parts in which a batch is computed, one after the other. The results are those of
        the whole batch, except for layers that look at several examples at once, such as batch normalization.
      activation_dtype: the dtype in which variables are read, "float32" or "bfloat16". They are kept in float32.
      evaluate_every: steps between evaluations. None: only at the end.
      checkpoint_every_steps: steps between checkpoints. None: only by time. One is written at the end in any case.
      checkpoint_every_minutes: minutes between checkpoints. None: only by steps.
      keep_checkpoints: how many of the newest checkpoints are kept.
      log_every: steps between two lines of metrics, shown and written.
      check_gradients: whether non-finite gradients end training before the step is taken, even if the loss is finite.
        The gradients' norm is then written as well. The check needs whole gradients, where updates may need only parts.
      initial_checkpoint: the source of the weights at step 0: the path of an imported folder, of a run or of a
        checkpoint, or an `InitialCheckpoint`, which has rules.
      quantization: the form in which a run written by meshtf-quantize keeps its kernels. Such a run cannot be trained.
      quantization_aware: the rounding with which the model learns, for quantization after training. Evaluations and
        decoding round in the same way.
      callbacks: run at steps, evaluations and checkpoints, and may end training. TensorBoard's always runs.
      peak_flops_per_core: the peak FLOPs per second of a core. If given, training shows what share of it is reached.
    """

    model: Model
    task: Task
    optimizer: mtf.optimize.Optimizer
    mesh_shape: str
    layout: LayoutLike
    batch_size: int
    num_steps: int
    seed: int = 0
    num_microbatches: int = 1
    activation_dtype: str = "float32"
    evaluate_every: int | None = None
    checkpoint_every_steps: int | None = None
    checkpoint_every_minutes: float | None = 10
    keep_checkpoints: int = 3
    log_every: int = 10
    check_gradients: bool = False
    peak_flops_per_core: float | None = None
    initial_checkpoint: str | InitialCheckpoint | None = None
    callbacks: Sequence[Callback] = ()
    quantization: Quantization | None = None
    quantization_aware: QuantizationAware | None = None

    def __post_init__(self) -> None:
        self._check_is("model", callable(getattr(self.model, "metrics", None)) and not isinstance(self.model, type))
        is_task = isinstance(self.task, Task) and not isinstance(self.task, type)
        self._check_is("task", is_task, what_it_lacks(self.task, Task))
        self._check_is("optimizer", isinstance(self.optimizer, mtf.optimize.Optimizer))
        self._check_integers(1, "batch_size", "num_steps", "num_microbatches", "keep_checkpoints", "log_every")
        self._check_integers(0, "seed")
        self._check_integers(1, "evaluate_every", "checkpoint_every_steps", may_be_none=True)
        self._check_positive("checkpoint_every_minutes", "peak_flops_per_core")
        self._check_text("mesh_shape")
        self._check_mesh()
        self._check_boolean("check_gradients")
        self._check_activation_dtype()
        self._check_callbacks()
        self._check_quantization("quantization", Quantization)
        self._check_quantization("quantization_aware", QuantizationAware)
        initial_checkpoint_of(self.initial_checkpoint)
        self._check_microbatches()
        self._check_vocabulary()
        self._check_classes()

    @property
    def batch(self) -> mtf.Dimension:
        return mtf.Dimension("batch", self.batch_size)

    @property
    def variable_dtype(self) -> mtf.VariableDType:
        """The dtypes of variables: kept in float32, and read in the dtype of the activations."""
        return mtf.VariableDType(tf.float32, activation_dtype=_ACTIVATION_DTYPES[self.activation_dtype])

    @property
    def mesh_options(self) -> mtf.MeshOptions:
        """The options of the mesh."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(MeshOptionFields)}
        return mtf.MeshOptions(**{name: value for name, value in given.items() if value is not None})

    def kept_weights(self) -> contextlib.AbstractContextManager[object]:
        """The context in which a program reads the trained weights, in the form in which they are kept."""
        if self.quantization is not None:
            return quantized_weights(self.quantization)
        if self.quantization_aware is not None:
            return quantization_aware(self.quantization_aware, is_training=False)
        return contextlib.nullcontext()

    def learned_weights(self) -> contextlib.AbstractContextManager[dict[str, mtf.Tensor]]:
        """The context in which a training step reads the weights, which gives the ranges of quantized activations."""
        if self.quantization_aware is None:
            return contextlib.nullcontext({})
        return quantization_aware(self.quantization_aware, is_training=True)

    @property
    def layout_text(self) -> str:
        """The layout as text."""
        return str(mtf.convert_to_layout_rules(self.layout))

    @property
    def tokens_per_step(self) -> int | None:
        """The number of tokens in a batch, or None if the examples have none."""
        tokens = self.task.tokens_per_example
        return None if tokens is None else tokens * self.batch_size

    def _check_microbatches(self) -> None:
        if self.batch_size % self.num_microbatches:
            raise ConfigurationError(
                f"Training.num_microbatches is {self.num_microbatches}, which does not divide the batch_size "
                f"{self.batch_size}; these do: {', '.join(map(str, divisors(self.batch_size)))}"
            )

    def _check_mesh(self) -> None:
        """Rejects an invalid mesh shape, layout or mesh option here, where the bindings are known."""
        parts: dict[str, Callable[[], object]] = {
            "Training.mesh_shape: ": lambda: MeshShapeRule.parse(self.mesh_shape),
            "Training.layout: ": lambda: mtf.convert_to_layout_rules(self.layout),
            "Training.": lambda: self.mesh_options,  # its errors begin with the option's name
        }
        for name, make in parts.items():
            try:
                make()
            except MeshtfError as error:
                raise ConfigurationError(f"{name}{str(error).rpartition(_AT)[0] or error}") from error

    def _check_vocabulary(self) -> None:
        """Rejects a task with more ids than the rows of a model of text, its `vocabulary.vocab_size`."""
        rows = getattr(getattr(self.model, "vocabulary", None), "vocab_size", None)
        if self.task.vocabulary is not None and rows is not None and self.task.vocabulary.size > rows:
            raise ConfigurationError(
                f"the vocabulary of Training.task has {counted(self.task.vocabulary.size, 'id')}, but that of "
                f"Training.model has {rows}: {self.task.vocabulary} does not fit; give the model a vocab_size of at "
                f"least {self.task.vocabulary.size}"
            )

    def _check_classes(self) -> None:
        """Rejects a task with more classes than the model."""
        given, known = (getattr(part, "num_classes", None) for part in (self.task, self.model))
        if isinstance(given, int) and isinstance(known, int) and given > known:
            name = type(self.model).__name__
            raise ConfigurationError(
                f"Training.task has {counted(given, 'class', 'classes')}, more than the {known} of {name}.num_classes"
            )

    def _check_callbacks(self) -> None:
        if not isinstance(self.callbacks, list | tuple):
            raise ConfigurationError(
                f"Training.callbacks must be a list, and is {self.callbacks!r}; in gin [@Name(), @Another()] is one"
            )
        for number, callback in enumerate(self.callbacks):
            if not isinstance(callback, Callback):
                raise ConfigurationError(
                    f"Training.callbacks[{number}] is no callback: {callback!r}; it must be an instance of a "
                    f"subclass of meshtf.train.Callback, and in gin @Name() makes one, parentheses included"
                )

    def _check_is(
        self, what: str, holds: bool, advice: str = "; in gin @Name() makes one, parentheses included"
    ) -> None:
        if not holds:
            raise ConfigurationError(f"Training.{what} is no {what}: {getattr(self, what)!r}{advice}")

    def _check_quantization(self, name: str, kind: type) -> None:
        value, wanted = getattr(self, name), kind.__name__
        if not isinstance(value, kind | None):
            raise ConfigurationError(
                f"Training.{name} must be a {wanted}, or None, and is {value!r}; in gin @{wanted}() makes one"
            )

    def _check_integers(self, least: int, *names: str, may_be_none: bool = False) -> None:
        for name in names:
            value = getattr(self, name)
            if may_be_none and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**63:
                bounds = f"{least} or more" if not isinstance(value, int) or value < least else "less than 2^63"
                raise ConfigurationError(f"Training.{name} must be an integer, {bounds}, and is {value!r}")

    def _check_boolean(self, name: str) -> None:
        if not isinstance(getattr(self, name), bool):
            raise ConfigurationError(f"Training.{name} must be True or False, and is {getattr(self, name)!r}")

    def _check_activation_dtype(self) -> None:
        value = self.activation_dtype
        if not isinstance(value, str) or value not in _ACTIVATION_DTYPES:
            raise ConfigurationError(
                f"Training.activation_dtype must be one of {', '.join(_ACTIVATION_DTYPES)}, and is {value!r}"
                f"{nearest(str(value), _ACTIVATION_DTYPES)}"
            )

    def _check_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and value > 0):
                raise ConfigurationError(f"Training.{name} must be a number above 0, or None, and is {value!r}")

    def _check_text(self, name: str) -> None:
        if not isinstance(getattr(self, name), str):
            raise ConfigurationError(f"Training.{name} must be a string, and is {getattr(self, name)!r}")


def configured_training() -> Training:
    """Returns the training that gin's present configuration describes.

    Raises:
      ConfigurationError: if a parameter is missing or wrong.
    """
    with configuration_errors():
        return Training()  # type: ignore[call-arg]  # gin fills in the arguments
