"""Arrays that are fed, cut for the cores of this process."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.planning import core_positions
from meshtf.planning.plan import Plan, Value


class FedSlices:
    """The slices of fed arrays that each core is given, cut in the memory of its host."""

    def __init__(self, plan: Plan, feeds: Sequence[tf.Tensor]) -> None:
        self._mesh_shape = plan.mesh_shape
        self._fed = [(feed.name, feed.output, x) for feed, x in zip(plan.feeds, feeds, strict=True)]
        self._cut: dict[tuple[str, Value, tuple[int, ...]], tf.Tensor] = {}

    def of(self, core: int, device: str) -> dict[str, tf.Tensor]:
        """The slices of a core, by the names of the feeds. Cores of one host that read the same share it."""
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
