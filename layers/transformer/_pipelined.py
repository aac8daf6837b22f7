"""Runs a stack's layers as a pipeline."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence

import meshtf as mtf
from meshtf.divisors import divisors
from meshtf.errors import ShapeError
from meshtf.layers.pipeline import pipeline_with_sums
from meshtf.layers.pipeline_schedule import PipelineSchedule
from meshtf.layers.transformer.context import BATCH, GROUPS, BatchPart, Context
from meshtf.layers.transformer.sublayer import ObservedSublayer, Sublayer

SEQUENCES = "sequences"

Tallies = dict[str, mtf.Tensor]

_DO_NOT_FIT = """\
"{batch}" with {length} tokens each: {culprit} works on {together} neighbours at once, and {units} times as many do \
not divide into {count} micro-batches; these numbers of micro-batches fit: {fitting}; or let {culprit} work on fewer \
tokens at once, such as those of one sequence"""


def pipelined_layers(
    layer: Callable[[mtf.Tensor, Context], tuple[mtf.Tensor, Mapping[str, mtf.Tensor]]],
    x: mtf.Tensor,
    context: Context,
    layers: mtf.Dimension,
    schedule: PipelineSchedule,
    together: int,
    recompute: mtf.RecomputePolicy | str | bool | None,
    depths: mtf.Tensor | None = None,
) -> tuple[mtf.Tensor, Tallies]:
    """Applies layers to x [batch, length, d_model], each stage to the tokens of its own micro-batch.

    Every stage reads the context's tensors with a `batch` where its micro-batch is. Tensors without a `batch` are the
    same for all.

    Args:
      layer: `layer(x, context) -> (x, tallies)`. The tallies are sums over the tokens, keyed by name.
      x: the tokens.
      context: the tokens' context.
      layers: the dimension that counts the layers.
      schedule: stages, micro-batches, rounds.
      together: the number of neighbouring sequences that must be in the same micro-batch.
      recompute: what the gradient keeps.
      depths: [layers]; the context of each layer has its own depth.

    Returns:
      The result of the last layer, and the tallies of all layers over the whole batch, [layers, ..].

    Raises:
      ShapeError, GraphError: as for `meshtf.layers.pipeline`.
    """
    gather = functools.partial(_neighbours_together, together=together)
    batch = x.shape[BATCH]
    context = dataclasses.replace(_map(context, gather), part=BatchPart(batch.size, together))
    beside: list[mtf.Tensor] = []

    def collect(tensor: mtf.Tensor) -> mtf.Tensor:
        # The same tensor may stand in several places of the context. It is passed on once.
        if tensor.shape.has(BATCH) and not any(tensor is known for known in beside):
            beside.append(tensor)
        return tensor

    _map(context, collect)
    names: list[str] = []

    def one_layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        of_whole = dict(zip(beside, parts, strict=False))
        own = dataclasses.replace(context, depth=None if depths is None else parts[-1])
        y, tallies = layer(carried[0], _map(own, lambda tensor: of_whole.get(tensor, tensor)))
        names[:] = tallies
        return [y], list(tallies.values())

    (y,), sums = pipeline_with_sums(
        one_layer,
        gather(x),
        layers,
        schedule,
        beside,
        sliced=[] if depths is None else [depths],
        batch_names=(BATCH, GROUPS),
        recompute=recompute,
    )
    return y.reshape(x.shape), dict(zip(names, sums, strict=True))


def sequences_together(sublayers: Sequence[Sublayer], shape: mtf.Shape, schedule: PipelineSchedule) -> int:
    """The number of sequences of x [batch, .., length, d_model] that a micro-batch must keep together for these
    sublayers.

    Raises:
      ShapeError: the batch does not divide so, or the numbers of two sublayers do not divide each other.
    """
    batch = shape[BATCH]
    length = shape[:-1].size // batch.size
    wants = [(own.together(batch.size, length), own) for own in sublayers if isinstance(own, ObservedSublayer)]
    # Every smaller group must fit into the largest one, so that no group is cut.
    together, culprit = max(wants, key=lambda want: want[0], default=(1, None))
    if culprit is None or together == 1:
        return 1
    for own, sublayer in wants:
        if together % own:
            raise ShapeError(
                f"{culprit.name} works on {together} neighbouring sequences at once and {sublayer.name} on {own}; in a "
                f"pipeline one of these numbers must divide the other"
            )
    units = batch.size // together
    if units % schedule.num_microbatches:
        facts = {"batch": batch, "length": length, "culprit": culprit.name, "together": together, "units": units}
        raise ShapeError(_DO_NOT_FIT.format(**facts, count=schedule.num_microbatches, fitting=divisors(units)))
    return together


def _neighbours_together(x: mtf.Tensor, together: int) -> mtf.Tensor:
    """[.., batch, ..] -> [.., batch, sequences, ..]: each position of `batch` then has `together` neighbours."""
    if together == 1 or not x.shape.has(BATCH):
        return x
    batch = x.shape[BATCH]
    dims = [mtf.Dimension(BATCH, batch.size // together), mtf.Dimension(SEQUENCES, together)]
    return x.unflatten(batch, dims)


def _map(context: Context, fn: Callable[[mtf.Tensor], mtf.Tensor]) -> Context:
    """The context with `fn` applied to every tensor that describes tokens."""
    memory = context.memory
    return dataclasses.replace(
        context,
        tokens=context.tokens.map(fn),
        positions=None if context.positions is None else fn(context.positions),
        lengths=None if context.lengths is None else fn(context.lengths),
        memory=None if memory is None else dataclasses.replace(memory, x=fn(memory.x), tokens=memory.tokens.map(fn)),
    )
