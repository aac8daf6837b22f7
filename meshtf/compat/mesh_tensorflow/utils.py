"""Functions that programs call around a session."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from meshtf.compat.mesh_tensorflow._refused import refusing
from meshtf.errors import DeviceError, counted


def outside_all_rewrites() -> contextlib.AbstractContextManager[None]:
    """A context whose operations do not wait for control dependencies that are open outside."""
    return tf.control_dependencies(None)


class BalancedVariablePlacer:
    """Puts each master on the device that has the fewest bytes of masters, for `mtf.Mesh(graph, name, placer)`.

    Args:
      devices: names of devices.
      init_usage: the bytes that each device has at first. By default 0.

    Raises:
      DeviceError: `init_usage` has another number of elements.
    """

    def __init__(self, devices: Sequence[str], init_usage: Sequence[int] | None = None) -> None:
        if init_usage and len(init_usage) != len(devices):
            numbers, given = counted(len(init_usage), "number"), counted(len(devices), "device")
            raise DeviceError(f"init_usage has {numbers} for {given}; give one for each")
        self._usage = dict(zip(devices, init_usage or [0] * len(devices), strict=True))
        self._last = devices[0]

    def device_function(self, operation: tf.Operation) -> str:
        """The device of a node. A node that is no variable gets the device of the last variable."""
        if operation.type in ("VarHandleOp", "VariableV2", "Variable"):
            elements = tf.TensorShape(operation.get_attr("shape")).num_elements()
            self._last = min(self._usage, key=lambda device: (self._usage[device], device))
            self._usage[self._last] += elements * operation.get_attr("dtype").size
        return self._last


def remove_summaries() -> None:
    """Does nothing, because the language's summaries are in no TensorFlow collection."""


_SUMMARY = "tf.compat.v1.summary.scalar of what lowering.export_to_tf_tensor returns"

_REPLACEMENTS = {
    "SCALAR_SUMMARIES_COLLECTION_KEY": _SUMMARY,
    "create_host_call": _SUMMARY,
    "topology_rank": "a TPU's topology is found by mtf.simd_mesh_impl.SimdMeshImpl itself",
}

if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__ = refusing(
        __name__, ["BalancedVariablePlacer", "outside_all_rewrites", "remove_summaries"], _REPLACEMENTS
    )
