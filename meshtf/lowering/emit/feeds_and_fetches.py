"""Cuts fed arrays into the slices of cores before a program runs, and joins the fetched slices after it.

On a mesh rows:2, x [batch:6] split over rows is fed as x[0:3] and x[3:6]. If y [batch:6] is returned as two slices of
3, the fetch is their concatenation. If both cores hold the whole of y, the fetch is the first core's copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from meshtf.planning import core_positions
from meshtf.planning.plan import Plan, Value

NO_CHECK_FAILED = -1

CoreResults = Mapping[int, Sequence[tf.Tensor]]
"""The slices of the fetches, and the index of the failed check or -1, keyed by core of this process."""


class FedSlices:
    """The slices of fed arrays that each core receives. They are cut in the memory of the core's host."""

    def __init__(self, plan: Plan, feeds: Sequence[tf.Tensor]) -> None:
        self._mesh_shape = plan.mesh_shape
        self._fed = [(feed.name, feed.output, x) for feed, x in zip(plan.feeds, feeds, strict=True)]
        self._cut: dict[tuple[str, Value, tuple[int, ...]], tf.Tensor] = {}

    def of(self, core: int, device: str) -> dict[str, tf.Tensor]:
        """The slices of a core, keyed by the names of the feeds. Cores of one host that read the same block share its
        slice."""
        host = tf.DeviceSpec.from_string(device).replace(device_type="CPU", device_index=0).to_string()
        return {name: self._slice(value, x, core, host) for name, value, x in self._fed}

    def _slice(self, value: Value, x: tf.Tensor, core: int, host: str) -> tf.Tensor:
        if value.slice_shape == tuple(value.shape.to_integer_list):
            return x
        block = core_positions.block(core, value.layout.axes, self._mesh_shape)
        if (host, value, block) not in self._cut:
            begin = [min(b * n, d.size) for b, n, d in zip(block, value.slice_shape, value.shape, strict=True)]
            held = [min(n, d.size - b) for b, n, d in zip(begin, value.slice_shape, value.shape, strict=True)]
            with tf.device(host):
                part = tf.slice(x, begin, held)
                if held != list(value.slice_shape):
                    part = tf.pad(part, [(0, n - have) for n, have in zip(value.slice_shape, held, strict=True)])
            self._cut[host, value, block] = part
        return self._cut[host, value, block]


def whole_fetches(plan: Plan, results: CoreResults) -> list[tf.Tensor]:
    """Joins the slices of each fetch to a whole tensor."""
    return [_joined(plan, value, {core: r[i] for core, r in results.items()}) for i, value in enumerate(plan.fetches)]


def first_of(results: CoreResults) -> Sequence[tf.Tensor]:
    """The results of the first core in this process."""
    return next(iter(results.values()))


def asserted_fetches(plan: Plan, results: CoreResults) -> tuple[list[tf.Tensor], tf.Tensor]:
    """The whole fetches, and the index of the failed check. A failed check raises InvalidArgumentError."""
    failed = first_of(results)[-1]
    # The assertion waits until all cores have finished. An error would abort running collectives, and make the process
    # unusable.
    with tf.control_dependencies([r[-1] for r in results.values()]):
        assertion = _assertion(plan, failed)
    with tf.control_dependencies([assertion]):
        return whole_fetches(plan, results), tf.identity(failed)


def checked_fetches(plan: Plan, fetches: Sequence[tf.Tensor], failed: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor]:
    """Returns these fetches and this index. A failed check raises InvalidArgumentError."""
    with tf.control_dependencies([_assertion(plan, failed)]):
        return [tf.identity(x) for x in fetches], tf.identity(failed)


def _assertion(plan: Plan, failed: tf.Tensor) -> tf.Operation:
    text = tf.gather(tf.constant([c.text for c in plan.checks]), tf.maximum(failed, 0))
    return tf.debugging.Assert(tf.equal(failed, NO_CHECK_FAILED), [text])


def _joined(plan: Plan, value: Value, slices: Mapping[int, tf.Tensor]) -> tf.Tensor:
    """Joins the slices of the cores to the whole tensor. Equal slices are taken from the first core that holds them."""
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
