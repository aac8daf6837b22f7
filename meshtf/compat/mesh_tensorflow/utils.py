"""What surrounds a program in a session."""

from __future__ import annotations

import contextlib

import tensorflow as tf

from meshtf.compat.mesh_tensorflow._refused import refusing


def outside_all_rewrites() -> contextlib.AbstractContextManager[None]:
    """What is made inside waits for nothing that is open outside."""
    return tf.control_dependencies(None)


class BalancedVariablePlacer:
    """Where masters would be put. They are on the host's first CPU here, and this is ignored by `mtf.Mesh`."""

    def __init__(self, devices: list[str], init_usage: list[int] | None = None) -> None:
        self.devices, self.init_usage = devices, init_usage


def remove_summaries() -> None:
    """Nothing: summaries of the language are in no collection of TensorFlow's."""


__getattr__ = refusing(
    __name__,
    ["BalancedVariablePlacer", "outside_all_rewrites", "remove_summaries"],
    {
        "create_host_call": "tf.compat.v1.summary.scalar of what lowering.export_to_tf_tensor returns",
        "topology_rank": "a TPU's topology is found by mtf.simd_mesh_impl.SimdMeshImpl itself",
    },
)
