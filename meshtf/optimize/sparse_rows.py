"""Optimizers for embedding tables: a step changes only the rows that it looked up.

The memory and the traffic of an update depend on the number of ids in a batch, and not on the number of rows. If an id
occurs several times, its gradients are summed first, as in the gradient of the whole table.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Sequence

import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.field_checks import check_fractions, check_kinds, check_not_negative
from meshtf.ops.algebra.casting import before_cast
from meshtf.ops.indexing.embedding_lookup import EmbeddingLookupOperation
from meshtf.ops.indexing.gather import GatherOperation, ScatterAddOperation
from meshtf.ops.indexing.row_update import RowRule, RowUpdateOperation
from meshtf.ops.variables.variable import ReadVariable
from meshtf.optimize._adam_moments import AdamMoments, float32_decay
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter
from meshtf.optimize.schedules.rates import count_step, rate_now
from meshtf.optimize.schedules.schedule import Rate, check_rates

_NOT_LOOKED_UP = """\
{optimizer} updates the rows of a table that one mtf.embedding_lookup or mtf.gather reads along its first dimension, \
so the gradient of "{name}" [{shape}] must be that of such a lookup, unchanged, and it comes from {found}
look up all of its ids at once, without micro-batches, and leave out clips and other changes of its gradient; or give \
it another optimizer with mtf.optimize.ParameterGroups"""


class _SparseRows(Optimizer):
    """An optimizer that updates only the rows that were looked up, by the rule of its subclass."""

    slots: tuple[str, ...] = ()

    @abc.abstractmethod
    def rule(self) -> RowRule:
        """The function that computes the new rows of a table and of its slots."""

    @abc.abstractmethod
    def scalars(self, mesh: mtf.Mesh) -> list[mtf.Tensor]:
        """The numbers of a step that the rule needs, float32."""

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        """The tables after one step.

        Raises:
          GraphError: some parameter's gradient does not come from a single lookup of rows.
        """
        rule, scalars = self.rule(), self.scalars(parameters[0].variable.mesh)
        return [self._updated(p, rule, scalars) for p in parameters]

    def _updated(self, parameter: Parameter, rule: RowRule, scalars: Sequence[mtf.Tensor]) -> mtf.Tensor:
        scatter = self._scatter(parameter)
        grads, ids = scatter.inputs
        lookup = scatter.gradient_of
        factor = lookup.capacity_factor if isinstance(lookup, EmbeddingLookupOperation) else None
        slots = [parameter.slot(suffix) for suffix in self.slots]
        tables = [_weights(parameter), *slots]
        operation = RowUpdateOperation(
            tables,
            ids,
            mtf.cast(grads, parameter.dtype),
            [parameter.scalar(s) for s in scalars],
            scatter.dim,
            rule,
            capacity_factor=factor,
        )
        new, *new_slots = operation.outputs
        for slot, value in zip(slots, new_slots, strict=True):
            mtf.assign(slot, value)
        return mtf.cast(new, parameter.dtype)

    def _scatter(self, parameter: Parameter) -> ScatterAddOperation:
        """The operation that would make the gradient of the whole table."""
        grad = parameter.grad
        while (inner := before_cast(grad)) is not grad:
            grad = inner
        found = grad.operation
        shape = parameter.variable.shape
        if (
            not isinstance(found, ScatterAddOperation)
            or not isinstance(found.gradient_of, EmbeddingLookupOperation | GatherOperation)
            or shape.axis(found.dim)
            or any(shape.has(d) for d in found.inputs[-1].shape)
        ):
            raise GraphError(
                _NOT_LOOKED_UP.format(
                    optimizer=type(self).__name__, name=parameter.name, shape=shape, found=found.label
                )
            )
        return found


@dataclasses.dataclass(frozen=True)
class SparseSgdOptimizer(_SparseRows):
    """w <- w - learning_rate * g, for the rows of tables that were looked up.

    Attributes:
      learning_rate: a number, a scalar of the program, or a schedule.

    Examples:
      >>> table, ids = mtf.get_variable(mesh, "table", "rows:100 d_model:8"), mtf.zeros(mesh, "batch:4", tf.int32)
      >>> loss = mtf.reduce_sum(mtf.square(mtf.embedding_lookup(table, ids, "rows")))
      >>> mtf.optimize.SparseSgdOptimizer(0.1).minimize(loss)
      [assign [rows:100 d_model:8] float32]
    """

    learning_rate: Rate

    def __post_init__(self) -> None:
        check_rates(self, "learning_rate")

    def rule(self) -> RowRule:
        return _sgd

    def scalars(self, mesh: mtf.Mesh) -> list[mtf.Tensor]:
        return [rate_now(self.learning_rate, mesh, "sparse_sgd")]


@dataclasses.dataclass(frozen=True)
class SparseAdagradOptimizer(_SparseRows):
    """Adagrad (Duchi et al. 2011), for the rows of tables that were looked up:

        s <- s + g^2
        w <- w - learning_rate * g / (sqrt(s + initial_accumulator) + epsilon)

    The state of a variable w is in `w/adagrad_s`.

    Attributes:
      learning_rate: a number, a scalar of the program, or a schedule.
      initial_accumulator: the sum of squares before the first step.
      epsilon: added to the root.

    Examples:
      >>> table, ids = mtf.get_variable(mesh, "table", "rows:100 d_model:8"), mtf.zeros(mesh, "batch:4", tf.int32)
      >>> loss = mtf.reduce_sum(mtf.square(mtf.embedding_lookup(table, ids, "rows")))
      >>> _ = mtf.optimize.SparseAdagradOptimizer(0.1).minimize(loss)
      >>> list(mesh.graph.variables)
      ['table', 'table/adagrad_s']
    """

    learning_rate: Rate
    initial_accumulator: float = 0.1
    epsilon: float = 1e-8
    slots = ("adagrad_s",)

    def __post_init__(self) -> None:
        check_kinds(self)
        check_rates(self, "learning_rate")
        check_not_negative(self, "initial_accumulator", "epsilon")

    def rule(self) -> RowRule:
        return _Adagrad(self.initial_accumulator, self.epsilon)

    def scalars(self, mesh: mtf.Mesh) -> list[mtf.Tensor]:
        return [rate_now(self.learning_rate, mesh, "sparse_adagrad")]


@dataclasses.dataclass(frozen=True)
class SparseAdamOptimizer(_SparseRows):
    """Adam for the rows of tables that were looked up, known as lazy Adam.

    The formulas are those of `AdamOptimizer`, and the bias correction counts all steps. A row that a step does not look
    up keeps its moments, which do not decay. The state of a variable w is in `w/adam_m` and `w/adam_v`.

    Attributes:
      learning_rate: a number, a scalar of the program, or a schedule.
      beta_1: decay of the mean of the gradients, per step that looks up the row.
      beta_2: decay of the mean of their squares, per step that looks up the row.
      epsilon: added to the root of the second moment.

    Examples:
      >>> table, ids = mtf.get_variable(mesh, "table", "rows:100 d_model:8"), mtf.zeros(mesh, "batch:4", tf.int32)
      >>> loss = mtf.reduce_sum(mtf.square(mtf.embedding_lookup(table, ids, "rows")))
      >>> _ = mtf.optimize.SparseAdamOptimizer(1e-3).minimize(loss)
      >>> list(mesh.graph.variables)
      ['table', 'sparse_adam/step', 'table/adam_m', 'table/adam_v']
    """

    learning_rate: Rate
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8
    slots = ("adam_m", "adam_v")

    def __post_init__(self) -> None:
        check_kinds(self)
        check_rates(self, "learning_rate")
        check_not_negative(self, "epsilon")
        check_fractions(self, "beta_1", "beta_2")

    def rule(self) -> RowRule:
        return _Adam(float32_decay(self.beta_1), float32_decay(self.beta_2))

    def scalars(self, mesh: mtf.Mesh) -> list[mtf.Tensor]:
        steps = count_step(mesh, "sparse_adam")
        correction = AdamMoments(self.beta_1, self.beta_2, self.epsilon).correction(steps.number)
        return [steps.rate(self.learning_rate) * correction.scale, correction.epsilon]


def _weights(parameter: Parameter) -> mtf.Tensor:
    """The table as it is stored, or the copy that another optimizer has put in its place."""
    stored = before_cast(parameter.value)
    return stored if isinstance(stored.operation, ReadVariable) else parameter.value


def _sgd(rows: Sequence[tf.Tensor], grads: tf.Tensor, scalars: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    return [rows[0] - scalars[0] * grads]


@dataclasses.dataclass(frozen=True)
class _Adagrad:
    initial_accumulator: float
    epsilon: float

    def __call__(
        self, rows: Sequence[tf.Tensor], grads: tf.Tensor, scalars: Sequence[tf.Tensor]
    ) -> Sequence[tf.Tensor]:
        weights, squares = rows
        squares += tf.square(grads)
        root = tf.sqrt(squares + self.initial_accumulator) + self.epsilon
        return [weights - scalars[0] * grads / root, squares]


@dataclasses.dataclass(frozen=True)
class _Adam:
    beta_1: float
    beta_2: float

    def __call__(
        self, rows: Sequence[tf.Tensor], grads: tf.Tensor, scalars: Sequence[tf.Tensor]
    ) -> Sequence[tf.Tensor]:
        (weights, mean, square), (rate, epsilon) = rows, scalars
        mean += (grads - mean) * (1 - self.beta_1)
        square += (tf.square(grads) - square) * (1 - self.beta_2)
        return [weights - mean * rate / (tf.sqrt(square) + epsilon), mean, square]
