"""A program of one core that uses only TensorFlow, so that a SavedModel can hold it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.emit.cores import SeparateCores
from meshtf.lowering.emit.feeds_and_fetches import NO_CHECK_FAILED
from meshtf.lowering.report.memory.peak_memory import PeakMemory, peak_memory
from meshtf.ops.inputs.placeholder import InputOperation
from meshtf.ops.side_effects.check_indices import CheckIndicesOperation, CheckOfFeeds
from meshtf.planning.plan import Feed, Plan, ReadVariable

STEP = "step"
"""The feed with the number of runs before this one. The random numbers that the program draws depend on it."""

Run = Callable[[Mapping[str, tf.Tensor]], dict[str, tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class SavedModelProgram:
    """Some of the results of a program on a mesh of one core, as a function of its inputs and variables.

    Attributes:
      program: the program whose variables are read.
      names: the names of the results.
      plan: the plan without assignments, with the checks of ids and labels. If it draws random numbers, a feed `step`
        replaces the variable that counts the program's runs.
    """

    program: mtf.Function
    names: tuple[str, ...]
    plan: Plan

    @classmethod
    def of(cls, program: mtf.Function, names: Sequence[str]) -> SavedModelProgram:
        """Returns the program for results that were exported under these names (`mtf.export`)."""
        results = [program.graph.exports[name] for name in names]
        checks = [o for o in program.graph.operations if isinstance(o, CheckIndicesOperation)]
        plan = program.lowering.plan_for(results, effects=checks)
        counter = f"{program.graph.name}/step"
        instructions = tuple(
            Feed(i.operation, STEP, i.output) if isinstance(i, ReadVariable) and i.name == counter else i
            for i in plan.instructions
        )
        return cls(program, tuple(names), dataclasses.replace(plan, instructions=instructions))

    @property
    def memory(self) -> PeakMemory:
        """The memory that a run of the program takes, including its variables."""
        return peak_memory(self.plan)

    @property
    def inputs(self) -> dict[str, tf.TensorSpec]:
        """The specifications of its inputs, by name, without `step` and constants."""
        feeds = [feed for feed in self.plan.feeds if feed.name != STEP and _constant(feed) is None]
        return {feed.name: tf.TensorSpec(feed.output.slice_shape, feed.output.dtype, feed.name) for feed in feeds}

    @property
    def results(self) -> dict[str, tf.TensorSpec]:
        values = zip(self.names, self.plan.fetches, strict=True)
        return {name: tf.TensorSpec(value.slice_shape, value.dtype, name) for name, value in values}

    @property
    def variables(self) -> dict[str, tf.Variable]:
        """The variables by name. They must have been restored."""
        store = self.program.variables
        held = {name: store.slices(name).slices[0] for name in self.plan.variable_names}
        return cast("dict[str, tf.Variable]", held)  # on an SpmdMeshImpl

    def function(self) -> Run:
        """Returns the program as a function from feeds by name to results by name, for use in a tf.function.

        If the program computes an id or a label that is out of range, the function raises InvalidArgumentError.
        """
        core_function = SeparateCores(self.plan, self.program.lowering.device_mesh, {}).function.function
        variables, plan = list(self.variables.values()), self.plan

        def run(feeds: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            coordinates = tf.zeros([plan.mesh_shape.ndims], tf.int32)
            arguments = [feeds[f.name] if f.name in feeds else tf.constant(_constant(f)) for f in plan.feeds]
            *results, failed = core_function(coordinates, *arguments, *(v.handle for v in variables))
            with tf.control_dependencies(_assertions(plan, failed)):
                return {name: tf.identity(x) for name, x in zip(self.names, results, strict=True)}

        return run


def _assertions(plan: Plan, failed: tf.Tensor) -> list[tf.Operation]:
    """Returns assertions that no check in the program has failed. `failed`: the number of the first failed check."""
    if not plan.checks:
        return []
    text = tf.gather(tf.constant([check.message for check in plan.checks]), tf.maximum(failed, 0))
    return [tf.debugging.Assert(tf.equal(failed, NO_CHECK_FAILED), [text])]


def within_range(
    program: SavedModelProgram, feeds: Mapping[str, tf.Tensor], called: Mapping[str, str] | None = None
) -> dict[str, tf.Tensor]:
    """Returns the feeds, [rows, ..], and asserts that the program accepts all their ids and labels.

    If it refuses one, TensorFlow raises InvalidArgumentError, which says what it is and where.

    Args:
      program: the program. A check is made only if all of its feeds are given.
      feeds: feeds by name.
      called: names for feeds in messages, by the feeds' own names. The own name is the default.
    """
    checks = [check for check in program.plan.feed_checks if isinstance(check, CheckOfFeeds)]
    assertions = [
        _assertion_of(check, [feeds[name] for name in check.feeds], (called or {}).get(check.feeds[0], check.feeds[0]))
        for check in checks
        if all(name in feeds for name in check.feeds)
    ]
    with tf.control_dependencies(assertions):
        return {name: tf.identity(x) for name, x in feeds.items()}


def _assertion_of(check: CheckOfFeeds, arrays: Sequence[tf.Tensor], name: str) -> tf.Operation:
    outside = check.is_outside(arrays)
    places = tf.where(outside)
    # One more row, so that there is a first row even if nothing is wrong.
    place = tf.concat([places, tf.zeros([1, outside.shape.rank], tf.int64)], axis=0)[0]
    index = tf.gather_nd(tf.pad(arrays[0], [[0, 1]] * outside.shape.rank), place)
    where = ["in row {}", "at position {}", *["{}"] * outside.shape.rank][: outside.shape.rank]
    text = tf.strings.format(f"{name} has {check.message}: {{}} {' '.join(where)}", (index, *tf.unstack(place)))
    return tf.debugging.Assert(tf.logical_not(tf.reduce_any(outside)), [text])


def _constant(feed: Feed) -> Any:
    """Returns the constant that a program has under an input's name, or None for an input that must be fed."""
    return feed.operation.value if isinstance(feed.operation, InputOperation) else None


def batch_after_batch(
    program: SavedModelProgram,
    feeds: Mapping[str, tf.Tensor],
    seed: tf.Tensor,
    padding: Mapping[str, int] | None = None,
) -> dict[str, tf.Tensor]:
    """Returns the results for any number of rows, from a program for a fixed number of rows.

    Args:
      program: a program whose inputs and results have the batch as first dimension.
      feeds: its inputs, [rows, ..].
      seed: an int32 scalar. The random numbers depend on it.
      padding: the values that fill the missing rows of the last batch, by the inputs' names. The default is 0.
    """
    run, size = program.function(), next(iter(program.inputs.values())).shape[0]
    rows = tf.shape(next(iter(feeds.values())))[0]
    count = (rows + size - 1) // size

    def batches(name: str, x: tf.Tensor) -> tf.Tensor:
        missing = [[0, count * size - rows]] + [[0, 0]] * (x.shape.rank - 1)
        whole = tf.pad(x, missing, constant_values=tf.cast((padding or {}).get(name, 0), x.dtype))
        return tf.reshape(whole, [count, *program.inputs[name].shape])

    def results_of(elements: tuple[tf.Tensor, dict[str, tf.Tensor]]) -> dict[str, tf.Tensor]:
        number, batch = elements
        step = tf.bitwise.left_shift(tf.cast(seed, tf.int64), tf.constant(32, tf.int64)) + tf.cast(number, tf.int64)
        return run({**batch, STEP: step})

    found = tf.map_fn(
        results_of,
        (tf.range(count), {name: batches(name, x) for name, x in feeds.items()}),
        parallel_iterations=1,
        fn_output_signature=program.results,
    )
    return {name: tf.reshape(x, [count * size, *x.shape[2:]])[:rows] for name, x in found.items()}
