"""The TPU that this process is connected to."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from meshtf.errors import DeviceError
from meshtf.mesh_impl.tpu.torus import Torus

LOCAL = "local"

_NO_TPU = """\
a TPU was asked for ("{tpu}"), and there is none: {fact}.
To lower a program for a TPU that is elsewhere, give its torus, as TpuMeshImpl(shape, layout, physical_torus="2x2"); to
run it here, give mtf.SpmdMeshImpl."""


@dataclasses.dataclass(frozen=True)
class TpuSystem:
    """An initialized TPU: its torus, and TensorFlow's description of it."""

    torus: Torus
    topology: tf.tpu.experimental.Topology
    job: str | None = None

    @classmethod
    def of(cls, topology: tf.tpu.experimental.Topology, job: str | None = None) -> TpuSystem:
        """From TensorFlow's description: chips along x, y and z, and cores on each chip. `job`: of its hosts."""
        x, y, z, cores_per_chip = (int(n) for n in topology.mesh_shape)
        return cls(Torus((x, y) if z == 1 else (x, y, z), cores_per_chip), topology, job)

    def devices(self, positions: Sequence[Sequence[int]]) -> tuple[str, ...]:
        """The device at each position of the torus."""
        return tuple(self.topology.tpu_device_name_at_coordinates(c, self.job) for c in self._coordinates(positions))

    def device_assignment(self, positions: Sequence[Sequence[int]]) -> tf.tpu.experimental.DeviceAssignment:
        """Puts replica number c of a program at position number c."""
        return tf.tpu.experimental.DeviceAssignment(self.topology, self._coordinates(positions)[:, np.newaxis, :])

    def _coordinates(self, positions: Sequence[Sequence[int]]) -> np.ndarray:
        """int32 [cores, 4]: x, y, z, core."""
        flat = [(*p[:-1], *[0] * (4 - len(p)), p[-1]) for p in positions]
        return np.asarray(flat, np.int32)


@functools.cache  # initializing a TPU again would lose the variables that are on it
def tpu_system(tpu: str) -> TpuSystem:
    """Connects to a TPU and initializes it, once in a process.

    Args:
      tpu: "local", or what `tf.distribute.cluster_resolver.TPUClusterResolver` takes.

    Raises:
      DeviceError: there is none.
    """
    if tpu == LOCAL and not tf.config.list_physical_devices("TPU"):
        raise DeviceError(_NO_TPU.format(tpu=tpu, fact="TensorFlow sees no TPU on this machine"))
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu)
        tf.config.experimental_connect_to_cluster(resolver)
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise DeviceError(_NO_TPU.format(tpu=tpu, fact=str(error).strip().splitlines()[0])) from error
    return TpuSystem.of(topology, None if tpu == LOCAL else resolver.task_type)
