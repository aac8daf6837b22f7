"""The results of a program, put together from the slices that each core gives at its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from meshtf.planning import core_positions
from meshtf.planning.plan import Plan, Value

NO_CHECK_FAILED = -1

CoreResults = Mapping[int, Sequence[tf.Tensor]]
"""The slices of the fetches and the index of the failed check, or -1, for each core of this process."""


def whole_fetches(plan: Plan, results: CoreResults) -> list[tf.Tensor]:
    """The fetches, whole."""
    return [_joined(plan, value, {core: r[i] for core, r in results.items()}) for i, value in enumerate(plan.fetches)]


def first_of(results: CoreResults) -> Sequence[tf.Tensor]:
    """The results of the first core in this process."""
    return next(iter(results.values()))


def asserted_fetches(plan: Plan, results: CoreResults) -> tuple[list[tf.Tensor], tf.Tensor]:
    """The fetches, whole, and the index of the failed check, where a failed check is an InvalidArgumentError."""
    failed = first_of(results)[-1]
    # Only when all cores are through: an error ends the collectives that are under way, and spoils the process.
    with tf.control_dependencies([r[-1] for r in results.values()]):
        assertion = _assertion(plan, failed)
    with tf.control_dependencies([assertion]):
        return whole_fetches(plan, results), tf.identity(failed)


def checked_fetches(plan: Plan, fetches: Sequence[tf.Tensor], failed: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Whole fetches and the index of the failed check, where a failed check is an InvalidArgumentError."""
    with tf.control_dependencies([_assertion(plan, failed)]):
        return [tf.identity(x) for x in fetches], tf.identity(failed)


def _assertion(plan: Plan, failed: tf.Tensor) -> tf.Operation:
    text = tf.gather(tf.constant([c.text for c in plan.checks]), tf.maximum(failed, 0))
    return tf.debugging.Assert(tf.equal(failed, NO_CHECK_FAILED), [text])


def _joined(plan: Plan, value: Value, slices: Mapping[int, tf.Tensor]) -> tf.Tensor:
    """The whole tensor from the slices of the cores. Slices that are alike are taken from the first core."""
    layout_axes = value.layout.axes
    blocks: dict[tuple[int, ...], tf.Tensor] = {}
    for core, piece in slices.items():
        blocks.setdefault(core_positions.block(core, layout_axes, plan.mesh_shape), piece)
    for dim in reversed(range(len(layout_axes))):
        joined: dict[tuple[int, ...], list[tf.Tensor]] = {}
        for position in sorted(blocks):
            joined.setdefault(position[:dim], []).append(blocks[position])
        blocks = {k: v[0] if len(v) == 1 else tf.concat(v, dim) for k, v in joined.items()}
    whole, sizes = blocks[()], value.shape.to_integer_list
    return tf.identity(whole) if whole.shape.as_list() == sizes else tf.slice(whole, [0] * len(sizes), sizes)
