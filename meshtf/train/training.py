"""A training, as gin describes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.divisors import divisors
from meshtf.errors import MeshtfError, counted, nearest
from meshtf.layout import LayoutLike
from meshtf.mesh_impl.mesh_options import SUM_DTYPES
from meshtf.mesh_impl.mesh_shape_rule import MeshShapeRule
from meshtf.train.callback import Callback
from meshtf.train.configuration import ConfigurationError, configuration_errors
from meshtf.train.initial_checkpoint import InitialCheckpoint, initial_checkpoint_of
from meshtf.train.task import Task

Metric: TypeAlias = "mtf.Tensor | tuple[mtf.Tensor, mtf.Tensor]"
"""A tensor [batch, ...] stands for the mean of its elements, and a pair (values, weights) for their weighted mean.

The two tensors of a pair have equal shapes. A metric without `batch` describes the batch as a whole: a scalar, or a
vector [n] or [layers, n], such as each expert's load.
"""

LOSS = "loss"
"""The metric that training lowers, a mean."""

_AT = "\n  at "  # before a line, here one of meshtf's

_ACTIVATION_DTYPES = {"float32": tf.float32, "bfloat16": tf.bfloat16}


class Model(Protocol):
    """A model that can be trained: a function from a batch's features to metrics."""

    def metrics(self, features: Mapping[str, mtf.Tensor], is_training: bool) -> dict[str, Metric]:
        """Returns metrics by name, from features [batch, ...] by name. "loss" is among the metrics."""
        ...


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class Training(mtf.MeshOptions):
    """A training: what to train, how, on which mesh, and what to write down when.

    The options of its mesh are parameters of its own, with the defaults of `mtf.MeshOptions`. None stands for the
    default, since older configurations may have it.

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
      num_microbatches: parts in which a batch is computed, one after the other, with the results of the whole batch.
      activation_dtype: "float32" or "bfloat16", in which variables are read. They are kept in float32.
      evaluate_every: steps between evaluations. None: only at the end.
      checkpoint_every_steps: steps between checkpoints. None: only by time. One is written at the end in any case.
      checkpoint_every_minutes: minutes between checkpoints. None: only by steps.
      keep_checkpoints: how many of the newest checkpoints are kept.
      log_every: steps between two lines of metrics, shown and written.
      check_gradients: whether gradients that are not finite end training before the step is taken, even if its loss is
        finite. Then their norm is also written. This needs whole gradients, where updates may need only parts of
        them.
      parameter_layout: see `mtf.MeshOptions`, as for the next thirteen. A layout is text, or what Python has for it.
      activation_layout: the layout of tensors that flow between layers.
      axis_parts: mesh axes in parts.
      shard_weight_update: whether repeated updates are divided.
      bucket_bytes: bytes of the largest bucket of collectives.
      gradient_sum_dtype: the name of the dtype in which gradients are summed.
      collective_timeout_seconds: seconds that one collective may take.
      max_padding: the largest share of a core's slice that may be padding, along a dimension that does not divide.
      check_memory: whether a training that needs more memory than the machine has left is refused.
      keep_freed_memory: whether the process keeps memory that a step has freed for the next one.
      share_memory: whether virtual CPUs of one process hand one another their slices in memory.
      compile_loops: whether loops that ask for it, as those of decoding, are compiled.
      axes_over_processes: the mesh axes that are laid over the processes of a cluster before the others.
      num_processes: the number of processes to plan for.
      initial_checkpoint: where a training at step 0 takes its weights from: the path of an imported folder, of a run or
        of a checkpoint, or an `InitialCheckpoint`, which has rules.
      callbacks: objects that are told of steps, evaluations and checkpoints, and may end training. TensorBoard's is
        always there.
      peak_flops_per_core: FLOPs that a core can do in a second. With it the share that training reaches is shown.
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

    def __post_init__(self) -> None:
        self._check_is("model", callable(getattr(self.model, "metrics", None)) and not isinstance(self.model, type))
        self._check_is("task", isinstance(self.task, Task) and not isinstance(self.task, type))
        self._check_is("optimizer", isinstance(self.optimizer, mtf.optimize.Optimizer))
        self._check_integers(1, "batch_size", "num_steps", "num_microbatches", "keep_checkpoints", "log_every")
        self._check_integers(0, "seed")
        self._check_integers(0, "bucket_bytes", may_be_none=True)
        self._check_integers(1, "evaluate_every", "checkpoint_every_steps", may_be_none=True)
        self._check_positive("checkpoint_every_minutes", "collective_timeout_seconds", "peak_flops_per_core")
        self._check_text("mesh_shape")
        self._check_mesh()
        self._check_boolean("shard_weight_update")
        self._check_boolean("check_gradients")
        self._check_boolean("check_memory")
        self._check_boolean("keep_freed_memory")
        self._check_boolean("share_memory")
        self._check_boolean("compile_loops")
        self._check_dtype("activation_dtype", _ACTIVATION_DTYPES)
        self._check_dtype("gradient_sum_dtype", SUM_DTYPES, may_be_none=True)
        self._check_callbacks()
        initial_checkpoint_of(self.initial_checkpoint)
        self._check_microbatches()
        self._check_vocabulary()

    @property
    def batch(self) -> mtf.Dimension:
        return mtf.Dimension("batch", self.batch_size)

    @property
    def variable_dtype(self) -> mtf.VariableDType:
        """The dtypes of variables: kept in float32, and read in the dtype of the activations."""
        return mtf.VariableDType(tf.float32, activation_dtype=_ACTIVATION_DTYPES[self.activation_dtype])

    @property
    def mesh_options(self) -> mtf.MeshOptions:
        """The options of the mesh alone."""
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(mtf.MeshOptions)}
        return mtf.MeshOptions(**{name: value for name, value in given.items() if value is not None})

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
        """Reports a wrong mesh or layout here, where the bindings are known."""
        names = ("layout", "parameter_layout", "activation_layout")
        layouts = [name for name in names if name == "layout" or getattr(self, name) is not None]
        parsers = {"mesh_shape": MeshShapeRule.parse} | dict.fromkeys(layouts, mtf.convert_to_layout_rules)
        for name, parse in parsers.items():
            try:
                parse(getattr(self, name))
            except MeshtfError as error:
                raise ConfigurationError(f"Training.{name}: {str(error).rpartition(_AT)[0] or error}") from error

    def _check_vocabulary(self) -> None:
        """Refuses ids that the model has no row for: a model of text has a `vocabulary` with a `vocab_size`."""
        rows = getattr(getattr(self.model, "vocabulary", None), "vocab_size", None)
        if self.task.vocabulary is not None and rows is not None and self.task.vocabulary.size > rows:
            raise ConfigurationError(
                f"the vocabulary of Training.task has {counted(self.task.vocabulary.size, 'id')}, and that of "
                f"Training.model {rows}: {self.task.vocabulary} does not fit; give the model a vocab_size of at least "
                f"{self.task.vocabulary.size}"
            )

    def _check_callbacks(self) -> None:
        if not isinstance(self.callbacks, list | tuple):
            raise ConfigurationError(
                f"Training.callbacks must be a list, and is {self.callbacks!r}; in gin [@Name(), @Another()] is one"
            )
        for number, callback in enumerate(self.callbacks):
            if not isinstance(callback, Callback):
                raise ConfigurationError(
                    f"Training.callbacks[{number}] is no callback: {callback!r}; it is an instance of a subclass of "
                    f"meshtf.train.Callback, and in gin @Name() makes one, parentheses included"
                )

    def _check_is(self, what: str, holds: bool) -> None:
        if not holds:
            raise ConfigurationError(
                f"Training.{what} is no {what}: {getattr(self, what)!r}; in gin @Name() makes one, parentheses included"
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

    def _check_dtype(self, name: str, fitting: Mapping[str, tf.DType], *, may_be_none: bool = False) -> None:
        value = getattr(self, name)
        if not (isinstance(value, str | tf.DType) and value in fitting) and not (may_be_none and value is None):
            choices = ", ".join([*fitting, "or None"] if may_be_none else fitting)
            raise ConfigurationError(
                f"Training.{name} must be one of {choices}, and is {value!r}{nearest(str(value), fitting)}"
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
