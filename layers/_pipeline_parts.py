"""The parts of a pipeline: the places of its layers in stages and rounds, and the micro-batches of its batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import meshtf as mtf
from meshtf.divisors import divisors
from meshtf.errors import ShapeError, counted
from meshtf.layers.pipeline_schedule import PipelineSchedule

STAGE, ROUND, STEP, MICROBATCH = "stage", "round", "step", "microbatch"


@dataclasses.dataclass(frozen=True)
class Places:
    """The places of layers: for each round, the stages in order, and in each stage `inside` layers.

    If the stages do not divide a round's layers, its last places are left over.
    """

    rounds: tuple[mtf.Dimension, ...]
    stage: mtf.Dimension
    inside: mtf.Dimension
    per_round: int

    @classmethod
    def of(cls, layers: mtf.Dimension, schedule: PipelineSchedule) -> Places:
        stages, rounds = schedule.num_stages, schedule.num_rounds
        if layers.size % rounds:
            raise ShapeError(f'"{layers}" does not divide into {rounds} rounds; these fit: {divisors(layers.size)}')
        per_round = layers.size // rounds
        if per_round < stages:
            each = f" in each of {rounds} rounds" if rounds > 1 else ""
            raise ShapeError(
                f'"{layers}" in {stages} stages: {counted(per_round, "layer")}{each} would leave stages without work; '
                f"use at most {counted(per_round, 'stage')}"
            )
        round_dims = (mtf.Dimension(ROUND, rounds),) if rounds > 1 else ()
        inside = mtf.Dimension(layers.name, -(-per_round // stages))
        return cls(round_dims, mtf.Dimension(STAGE, stages), inside, per_round)

    @property
    def left_over(self) -> int:
        return self.stage.size * self.inside.size - self.per_round

    @property
    def of_variables(self) -> list[mtf.Dimension]:
        """The dimensions that count the layers of variables, which have no place that is left over."""
        stages = [mtf.Dimension(STAGE, self.per_round)] if self.left_over else [self.stage, self.inside]
        return [*self.rounds, *stages]

    def by_stage(self, weights: mtf.Tensor) -> mtf.Tensor:
        """A variable as [round, stage, layers, ..]. Places that are left over hold arbitrary numbers."""
        if not self.left_over:
            return weights
        rest = weights.shape[len(self.of_variables) :]
        return mtf.pad(weights, [0, self.left_over], STAGE, pad_value=None).reshape(
            [*self.rounds, self.stage, self.inside, *rest]
        )

    def of_variable(self, x: mtf.Tensor, layers: mtf.Dimension) -> mtf.Tensor:
        """A tensor [layers, ..] in the shape of a variable."""
        if layers not in x.shape.dims[:1]:
            raise ShapeError(f'[{x.shape}] must begin with "{layers}", since each layer gets its part of it')
        return x.reshape([*self.of_variables, *x.shape[1:]])

    def by_layer(self, x: mtf.Tensor, layers: mtf.Dimension) -> mtf.Tensor:
        """A tensor with a value for each place [round, stage, layers, ..], as [layers, ..]."""
        rest = x.shape[len(self.rounds) + 2 :]
        if self.left_over:
            all_places = mtf.Dimension(layers.name, self.stage.size * self.inside.size)
            x = x.reshape([*self.rounds, all_places, *rest])[layers.name, : self.per_round]
        return x.reshape([layers, *rest])

    def is_left_over(self, stages: mtf.Tensor, number: mtf.Tensor) -> mtf.Tensor:
        """bool [stage]: whether the place with this number is left over, in each stage."""
        return stages * self.inside.size + number >= self.per_round


@dataclasses.dataclass(frozen=True)
class Microbatching:
    """The cut of the batch into micro-batches. A part keeps the batch's name, and its split."""

    batch: mtf.Dimension
    microbatch: mtf.Dimension
    aliases: tuple[str, ...]

    @classmethod
    def of(cls, xs: Sequence[mtf.Tensor], schedule: PipelineSchedule, batch_names: Sequence[str]) -> Microbatching:
        count = schedule.num_microbatches
        batch_name, *aliases = batch_names
        for x in xs:
            if not x.shape.has(batch_name):
                raise ShapeError(f'[{x.shape}] has no dimension "{batch_name}" to cut into micro-batches')
            for own in (STAGE, MICROBATCH, STEP, ROUND):
                if x.shape.has(own):
                    raise ShapeError(f'[{x.shape}] has dimension "{own}", a name that pipelines use; rename it')
        batch = xs[0].shape[batch_name]
        for x in xs:
            x.shape.axis(batch)
        if batch.size % count:
            raise ShapeError(f'"{batch}" does not divide into {count} micro-batches; these fit: {divisors(batch.size)}')
        return cls(batch, mtf.Dimension(MICROBATCH, count), tuple(aliases))

    @property
    def micro(self) -> mtf.Dimension:
        return mtf.Dimension(self.batch.name, self.batch.size // self.microbatch.size)

    def part(self, x: mtf.Tensor) -> mtf.Shape:
        return mtf.Shape([self.micro if d.name == self.batch.name else d for d in x.shape])

    def parts(self, x: mtf.Tensor) -> mtf.Tensor:
        """The parts of x, [microbatch, ...]."""
        x = x.unflatten(self.batch, [self.micro, self.microbatch])
        return x.transpose([self.microbatch, *(d for d in x.shape if d != self.microbatch)])

    def summed(self, x: mtf.Tensor, stage: mtf.Dimension) -> mtf.Tensor:
        """A layer's sum, [stage, ...]."""
        if x.shape.has(self.batch.name):
            raise ShapeError(f'a sum over the micro-batch still has dimension "{self.batch.name}": [{x.shape}]')
        rest = [d for d in x.shape if d.name != stage.name]
        return mtf.transpose(x if x.shape.has(stage.name) else mtf.broadcast(x, [stage, *rest]), [stage, *rest])

    def whole(self, parts: mtf.Tensor, shape: mtf.Shape) -> mtf.Tensor:
        """The parts put together again in this shape: the opposite of `parts`."""
        dims = [d for own in shape for d in ((self.micro, self.microbatch) if own == self.batch else (own,))]
        return parts.transpose(dims).reshape(shape)
