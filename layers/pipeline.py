"""Pipelines: layers in stages that are computed at once, each on its own micro-batch.

Take 4 layers in 2 stages, and a batch in 3 micro-batches. All stages are one computation, vectorized along `stage`. A
buffer [stage, batch, ..] holds each stage's input. Each step applies every stage to its part, and then shifts the
buffer by one place:

    step    stage 0 (layers 0, 1)    stage 1 (layers 2, 3)    leaves
    0       m0                       waits                    -
    1       m1                       m0                       m0
    2       m2                       m1                       m1
    3       waits                    m2                       m2

If a mesh axis splits `stage`, each core computes one stage, and the shift is a permute between neighbours. A stage that
waits computes too, and its results are discarded, so that all cores run the same program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import ShapeError
from meshtf.layers._operands import DimensionLike, new_dimension
from meshtf.layers._pipeline_parts import MICROBATCH, ROUND, STAGE, STEP, Microbatching, Places
from meshtf.layers.pipeline_schedule import PipelineSchedule

_GROUP = "group"

LayerFn: TypeAlias = "Callable[[list[mtf.Tensor], list[mtf.Tensor]], Sequence[mtf.Tensor]]"
SummingLayerFn: TypeAlias = (
    "Callable[[list[mtf.Tensor], list[mtf.Tensor]], tuple[Sequence[mtf.Tensor], Sequence[mtf.Tensor]]]"
)
CarriedAndResults: TypeAlias = "tuple[list[mtf.Tensor], list[mtf.Tensor]]"
Recompute: TypeAlias = "mtf.RecomputePolicy | str | bool | None"


@language_function
def pipeline(
    layer_fn: LayerFn,
    carried: mtf.Tensor | Sequence[mtf.Tensor],
    layers: DimensionLike,
    schedule: PipelineSchedule,
    beside: Sequence[mtf.Tensor] = (),
    *,
    batch_name: str = "batch",
    recompute: Recompute = None,
    name: str = "layer",
) -> list[mtf.Tensor]:
    """Applies layers as `mtf.layer_stack` does, but layers of different stages at once (Huang et al. 2018).

    A stage's layers follow one another along `layers`. Layers of different stages are vectorized along `stage`, which a
    layout splits over the mesh. If stages do not divide the layers, the last stages have fewer, and pass on their input
    while the others compute. In every step each stage takes a micro-batch one stage further. Then one permute moves all
    results to the next stages: the shifting buffer of GSPMD (Xu et al. 2021). The gradient does the same backwards.
    Results, gradients, initial values, random bits and files are those of the plain stack.

    A layer's tensors also have the dimension `stage`; see `mtf.VectorizedLayers`. Along `batch_name` a layer sees a
    part of the batch: of n micro-batches, micro-batch k has every n-th example from the k-th on.

    Args:
      layer_fn: `layer_fn(carried, beside) -> carried`, one layer; shapes and dtypes stay the same.
      carried: the first layer's inputs, [.., batch, ..].
      layers: the dimension that counts all layers, with as many in each round.
      schedule: the stages, micro-batches and rounds.
      beside: inputs of every layer for its micro-batch, [.., batch, ..], such as segments. They are not passed on:
        each stage reads its own.
      batch_name: the dimension that is cut into micro-batches.
      recompute: what the gradient keeps of each step of a stage. "nothing" keeps only the inputs of a stage (as GPipe).
        "nested" keeps the same, and, while it computes the stage again, only the inputs of each layer. Other values are
        those of `mtf.scan`.
      name: the name of the layers' scope.

    Returns:
      The results of the last layer, in the shapes of `carried`.

    Raises:
      ShapeError: rounds do not divide the layers, or micro-batches the batch; there are fewer layers than stages;
        something lacks the batch; a layer changes a shape.
      DtypeError: a layer changes a dtype.
      GraphError: a layer prints, checks or assigns, or mixes tensors of different layers.

    Examples:
      >>> def layer(carried, beside):
      ...     return [carried[0] + mtf.layers.dense(carried[0], "hidden")]
      >>> schedule = mtf.layers.PipelineSchedule(num_stages=2, num_microbatches=4)
      >>> (y,) = mtf.layers.pipeline(layer, x, "layers:4", schedule)
      >>> y.shape
      Shape[batch:4 hidden:8]
    """

    def without_sums(given: list[mtf.Tensor], own: list[mtf.Tensor]) -> CarriedAndResults:
        returned = layer_fn(given, own)
        if not isinstance(returned, list | tuple):
            raise ShapeError(f"a layer of a pipeline must return a list of tensors, and returned {returned!r}")
        return list(returned), []

    return pipeline_with_sums(
        without_sums, carried, layers, schedule, beside, batch_names=(batch_name,), recompute=recompute, name=name
    )[0]


@language_function
def pipeline_with_sums(  # noqa: PLR0913  # those of `pipeline`, and one
    layer_fn: SummingLayerFn,
    carried: mtf.Tensor | Sequence[mtf.Tensor],
    layers: DimensionLike,
    schedule: PipelineSchedule,
    beside: Sequence[mtf.Tensor] = (),
    *,
    sliced: Sequence[mtf.Tensor] = (),
    batch_names: Sequence[str] = ("batch",),
    recompute: Recompute = None,
    name: str = "layer",
) -> CarriedAndResults:
    """A pipeline whose layers also return sums over the batch, such as auxiliary losses or statistics.

    The sums of micro-batches are added up. Values that a stage computes while it waits are left out of them.

    Args:
      layer_fn: `layer_fn(carried, beside) -> (carried, sums)`, one layer. It may return any number of sums over its
        micro-batch, without `batch`. Its parts of `sliced` follow those of `beside`.
      carried: see `pipeline`.
      layers: see `pipeline`.
      schedule: see `pipeline`.
      beside: see `pipeline`.
      sliced: tensors over the layers, [layers, ..]; each layer gets its part.
      batch_names: the dimension that is cut into micro-batches, then the names of others that a layer makes of it, such
        as groups of examples. Along all of these, random bits are those of the whole batch.
      recompute: see `pipeline`.
      name: see `pipeline`.

    Returns:
      The results of the last layer, and the sums of all layers over the whole batch, [layers, ..].

    Raises:
      ShapeError, DtypeError, GraphError: as for `pipeline`, or a sum has the batch, or something sliced lacks
        the layers.

    Examples:
      >>> def layer(carried, beside):
      ...     h = mtf.tanh(mtf.layers.dense(carried[0], "hidden"))
      ...     return [h], [mtf.reduce_sum(mtf.square(h), reduced_dim="batch")]
      >>> schedule = mtf.layers.PipelineSchedule(num_stages=2, num_microbatches=4)
      >>> (y,), (lengths,) = mtf.layers.pipeline_with_sums(layer, x, "layers:4", schedule)
      >>> y.shape, lengths.shape
      (Shape[batch:4 hidden:8], Shape[layers:4 hidden:8])
    """
    xs = [carried] if isinstance(carried, mtf.Tensor) else list(carried)
    if not xs:
        raise ShapeError("pipeline needs at least one carried value; carried is empty")
    if not isinstance(schedule, PipelineSchedule):
        raise ShapeError(f"a pipeline needs a mtf.layers.PipelineSchedule, and was given {schedule!r}")
    cut = Microbatching.of([*xs, *beside], schedule, batch_names)
    layers = new_dimension(layers, *xs, *beside)
    places = Places.of(layers, schedule)
    stage = places.stage

    def layer(given: list[mtf.Tensor]) -> list[mtf.Tensor]:
        returned = layer_fn(given[: len(xs)], given[len(xs) :])
        if not isinstance(returned, list | tuple) or len(returned) != 2:
            raise ShapeError(f"a layer of pipeline_with_sums must return (carried, sums), and returned {returned!r}")
        ys, sums = returned
        return [*ys, *(cut.summed(x, stage) for x in sums)]

    of_variables = [places.of_variable(x, layers) for x in sliced]
    given = [(mtf.Shape([stage, *cut.part(x)]), x.dtype) for x in [*xs, *beside]]
    given += [(mtf.Shape([stage, *x.shape[len(places.of_variables) :]]), x.dtype) for x in of_variables]
    vectorized = mtf.vectorized_layers(xs[0].mesh, layer, given, places.of_variables, stage, name)
    ys, sums = _Pipeline(vectorized, schedule, cut, places, list(beside), of_variables).run(xs, recompute)
    return ys, [places.by_layer(x, layers) for x in sums]


@dataclasses.dataclass(frozen=True)
class _Turn:
    """The work of each stage in a step, as tensors [stage]."""

    rounds: mtf.Tensor
    microbatches: mtf.Tensor
    is_waiting: mtf.Tensor

    def used(self, x: mtf.Tensor) -> mtf.Tensor:
        """x [.., stage, ..], without gradients through stages that wait."""
        return _without_gradients(x, self.is_waiting)


@dataclasses.dataclass(frozen=True)
class _Pipeline:
    """The scan over steps. Each step scans over the layers of a group."""

    vectorized: mtf.VectorizedLayers
    schedule: PipelineSchedule
    cut: Microbatching
    places: Places
    beside: list[mtf.Tensor]
    sliced: list[mtf.Tensor]

    @property
    def stage(self) -> mtf.Dimension:
        return self.places.stage

    @property
    def inside(self) -> mtf.Dimension:
        return self.places.inside

    @property
    def step(self) -> mtf.Dimension:
        return mtf.Dimension(STEP, self.schedule.num_steps)

    def run(self, xs: list[mtf.Tensor], recompute: Recompute) -> CarriedAndResults:
        """The results of the last layer, and sums over [round, stage, layers], or [stage, layers] in one round."""
        mesh, schedule = xs[0].mesh, self.schedule
        beside = [self.cut.parts(x) for x in self.beside]
        buffers = [mtf.zeros(mesh, [self.stage, *self.cut.part(x)], x.dtype) for x in xs]
        tables = (schedule.rounds, schedule.microbatches, schedule.takes_from_neighbour, ~schedule.is_useful)
        by_step = [self._constant(table, [self.step, self.stage]) for table in tables]
        is_last = self._constant(np.arange(self.stage.size) == self.stage.size - 1, [self.stage])
        with mtf.variable_scope(default_name="pipeline") as scope:
            by_layer = [self.places.by_stage(x) for x in [*self.vectorized.weights, *self.sliced]]
            of_step, of_layer = _policies(recompute, f"{scope}/{_GROUP}")

            def one_step(arrived: list[mtf.Tensor], parts: list[mtf.Tensor]) -> CarriedAndResults:
                rounds, microbatches, takes, waits, entering_now, *others = parts
                entering, ready = [x[MICROBATCH, entering_now] for x in parts_of_xs], iter(others)
                # A stage that waits computes on a first layer's input. Its results are discarded, and have no
                # gradients.
                given = [
                    mtf.where(takes, old, new, output_shape=old.shape)
                    for old, new in zip(arrived, entering, strict=True)
                ]
                own = [next(ready) if x.dtype.is_floating else x[MICROBATCH, microbatches] for x in beside]
                turn = _Turn(rounds, microbatches, waits)
                used, used_beside = [turn.used(x) for x in given], [turn.used(x) for x in own]
                ys, sums = self._group(used, used_beside, by_layer, turn, of_layer)
                # Only one term of the sum is not zero. The sum becomes an allreduce, after which every core has the
                # last stage's result.
                last = [mtf.where(is_last, y, 0, output_shape=y.shape) for y in ys]
                last = [y.any(STAGE) if y.dtype == tf.bool else y.sum(STAGE) for y in last]
                # With several rounds the last stage hands its result to the first, which has the next round's layers.
                return [mtf.shift(y, 1, self.stage, wrap=schedule.num_rounds > 1) for y in ys], [*last, *sums]

            # Floating tensors have gradients. They are gathered for all steps at once, so that their gradient crosses
            # the stages once.
            early = [x[MICROBATCH, by_step[1]] for x in beside if x.dtype.is_floating]
            parts_of_xs = [self.cut.parts(x) for x in xs]
            by_step += [self._constant(schedule.microbatches[:, 0], [self.step]), *early]
            steps = mtf.PipelineSteps(
                self.step, self.stage, schedule.is_useful, schedule.num_microbatches, schedule.num_rounds
            )
            _, lasts = mtf.scan(one_step, buffers, by_step, steps, recompute=of_step, draws_alike=True, name="steps")
        ys = [self.cut.whole(self._leaving(y), x.shape) for x, y in zip(xs, lasts, strict=False)]
        return ys, [self._added_up(x) for x in lasts[len(xs) :]]

    def _group(
        self,
        xs: list[mtf.Tensor],
        beside: list[mtf.Tensor],
        by_layer: list[mtf.Tensor],
        turn: _Turn,
        recompute: Recompute,
    ) -> CarriedAndResults:
        """Applies every stage's layers of one round, one after the other; returns their sums, too, [layers, stage,
        ...].
        """
        # Stages are in different rounds at one step, so each takes the weights of its own round.
        if self.schedule.num_rounds > 1:
            by_layer = [x[ROUND, turn.rounds] for x in by_layer]
        by_layer = [turn.used(x) for x in by_layer]
        stages = mtf.range(self.vectorized.mesh, self.stage, tf.int32)
        first = turn.rounds * self.places.per_round + stages * self.inside.size
        cut = mtf.Dimension(self.cut.batch.name, self.cut.microbatch.size)

        def one_layer(entering: list[mtf.Tensor], parts: list[mtf.Tensor]) -> CarriedAndResults:
            number, *here = parts
            weights, sliced = here[: len(self.vectorized.weights)], here[len(self.vectorized.weights) :]
            given = [*entering, *beside, *sliced]
            if self.places.left_over:
                is_left_over = self.places.is_left_over(stages, number)
                # `Places.by_stage` leaves out the gradients of weights at these places.
                given = [_without_gradients(x, is_left_over) for x in given]
            outputs = self.vectorized(
                given, weights, first + number, turn.microbatches, cut, also_microbatched=self.cut.aliases
            )
            ys = outputs[: len(xs)]
            if self.places.left_over:
                ys = [mtf.where(is_left_over, x, y, output_shape=y.shape) for x, y in zip(entering, ys, strict=True)]
            return ys, outputs[len(xs) :]

        numbers = mtf.range(self.vectorized.mesh, self.inside, tf.int32)
        return mtf.scan(
            one_layer, xs, [numbers, *by_layer], self.inside, recompute=recompute, draws_alike=True, name=_GROUP
        )

    def _leaving(self, ys: mtf.Tensor) -> mtf.Tensor:
        """[step, ...] -> [microbatch, ...]: the results of the last stage in the last round."""
        rest, rounds = ys.shape[1:], self.schedule.num_rounds
        # The first micro-batch leaves the last stage after stage.size - 1 steps.
        ys = ys[STEP, self.stage.size - 1 :]
        if rounds > 1:
            group, places = self._groups
            ys = ys.reshape([group, mtf.Dimension(ROUND, rounds), places, *rest])
            ys = ys[ROUND, -1:]
        return ys.reshape([self.cut.microbatch, *rest])

    def _added_up(self, sums: mtf.Tensor) -> mtf.Tensor:
        """[step, layers, stage, ...] -> [round, stage, layers, ...]: the sums over the useful steps."""
        rest = sums.shape[3:]
        rounds = np.arange(self.schedule.num_rounds)[:, None, None]
        counts = self.schedule.is_useful & (self.schedule.rounds == rounds)
        round_dim = mtf.Dimension(ROUND, self.schedule.num_rounds)
        is_counted = self._constant(counts, [round_dim, self.step, self.stage])
        # Chosen, not multiplied by 0: a stage that waits may compute infinities.
        parts = mtf.where(is_counted, sums, 0, output_shape=[round_dim, *sums.shape])
        of_stages = mtf.reduce_sum(parts, output_shape=[round_dim, self.stage, self.inside, *rest])
        # A sum over the stages, because many small sums can travel together in one collective.
        everywhere = mtf.Dimension(f"({STAGE})", self.stage.size)
        own = self._constant(np.eye(self.stage.size, dtype=bool), [everywhere, self.stage]).astype(sums.dtype)
        ordered = mtf.einsum([own, of_stages], output_shape=[round_dim, everywhere, self.inside, *rest])
        return ordered if round_dim.size > 1 else ordered.reshape(ordered.shape[1:])

    @property
    def _groups(self) -> list[mtf.Dimension]:
        """The dimensions of micro-batches: in a circular schedule, the groups that go round together come first."""
        if self.schedule.num_rounds == 1:
            return [self.cut.microbatch]
        count = self.cut.microbatch.size // self.stage.size
        return [mtf.Dimension(f"({MICROBATCH}-groups)", count), mtf.Dimension(f"({MICROBATCH})", self.stage.size)]

    def _constant(self, values: np.ndarray, dims: list[mtf.Dimension]) -> mtf.Tensor:
        return mtf.constant(self.vectorized.mesh, values, dims, tf.as_dtype(values.dtype))


def _without_gradients(x: mtf.Tensor, of: mtf.Tensor) -> mtf.Tensor:
    """x [.., stage, ..], without gradients through the stages `of`, bool [stage]."""
    return mtf.stop_gradient(x, of) if x.dtype.is_floating else x


def _policies(recompute: Recompute, group: str) -> tuple[Recompute, Recompute]:
    """The recomputation policies of a step, and of each layer in a group of this name."""
    if recompute == "nested":
        return "nothing", "nothing"
    if recompute == "nothing" or recompute is True:
        return "nothing", None
    # The weights of a round are gathered in each step; the gradient must not keep them a second time.
    return mtf.RecomputePolicy("nothing", names=(group,)), recompute
