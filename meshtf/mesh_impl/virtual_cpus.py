"""Virtual CPUs: several logical devices on one machine's processor."""

from __future__ import annotations

import tensorflow as tf

from meshtf.errors import DeviceError


def virtual_cpus(n: int) -> tuple[str, ...]:
    """Sets up `n` logical CPUs, and returns the names of the first `n`.

    Nothing is changed where there are `n` or more already. To be called before TensorFlow starts, which it does at its
    first op, or when a mesh lists the devices.

    Raises:
      DeviceError: if TensorFlow has started with fewer.
    """
    if n < 1:
        raise DeviceError(f"mtf.virtual_cpus({n}): a mesh has at least one core")
    cpu = tf.config.list_physical_devices("CPU")[0]
    present = len(tf.config.get_logical_device_configuration(cpu) or [None])
    if present < n:
        try:
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * n)
        except RuntimeError:
            raise DeviceError(
                f"mtf.virtual_cpus({n}) came too late: TensorFlow has already started, with {present} logical "
                f"CPU{'s' if present > 1 else ''}. Call it before the first TensorFlow op and the first mesh"
            ) from None
    return tuple(f"/device:CPU:{i}" for i in range(n))
