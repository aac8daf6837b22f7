"""Virtual CPUs: several logical devices on one machine's processor."""

from __future__ import annotations

import os

import numpy as np
import tensorflow as tf

from meshtf.call_sites import says_where
from meshtf.errors import DeviceError, UsageError

_MOST = 4096
_TOO_MANY = """\
mtf.virtual_cpus({n}): virtual CPUs share this machine's {processors} processors, and more than {most} take minutes to \
start. Make the mesh smaller, or plan for it on paper, without devices: mtf.PlanMeshImpl, and the program meshtf-plan"""


@says_where
def virtual_cpus(n: int) -> tuple[str, ...]:
    """Sets up `n` logical CPUs, and returns the names of the first `n`.

    Call it before TensorFlow starts. TensorFlow starts at its first op, or when a mesh lists the devices. Nothing
    changes if there are `n` or more already.

    An op of one virtual CPU uses as many threads as its share of the processors. Virtual CPUs run ops at the same time,
    which would otherwise compete for threads. To set another number of threads, first call
    `tf.config.threading.set_intra_op_parallelism_threads`.

    Raises:
      DeviceError: if TensorFlow has started with fewer, or if `n` is less than 1 or more than 4,096. With more, a
        program would take minutes to start.
      UsageError: if `n` is not an integer.

    Examples:
      >>> mtf.virtual_cpus(2)
      ('/device:CPU:0', '/device:CPU:1')
    """
    n = _checked(n)
    cpu = tf.config.list_physical_devices("CPU")[0]
    present = len(tf.config.get_logical_device_configuration(cpu) or [None])
    if present < n:
        try:
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * n)
            if tf.config.threading.get_intra_op_parallelism_threads() in (0, _threads_of_each(present)):
                tf.config.threading.set_intra_op_parallelism_threads(_threads_of_each(n))
        except RuntimeError:
            raise DeviceError(
                f"mtf.virtual_cpus({n}) came too late: TensorFlow has already started, with {present} logical "
                f"CPU{'s' if present > 1 else ''}. Call it before the first TensorFlow op and the first mesh"
            ) from None
    return tuple(f"/device:CPU:{i}" for i in range(n))


def _checked(n: object) -> int:
    if not isinstance(n, int | np.integer) or isinstance(n, bool):
        raise UsageError(f"mtf.virtual_cpus({n!r}): the number of CPUs is a whole number, as in mtf.virtual_cpus(8)")
    if n < 1:
        raise DeviceError(f"mtf.virtual_cpus({n}): a mesh has at least one core")
    if n > _MOST:
        raise DeviceError(_TOO_MANY.format(n=n, most=_MOST, processors=num_processors()))
    return int(n)


def _threads_of_each(n: int) -> int:
    return max(1, num_processors() // n)


def num_processors() -> int:
    """The number of this machine's processors that this process may use."""
    # Only Linux tells which processors this process may use.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
