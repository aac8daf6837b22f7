"""The device where a core keeps its slices of variables, and computes."""

from __future__ import annotations

import re
from collections.abc import Iterable

import tensorflow as tf

_VIRTUAL_CPU = re.compile(r"(.*/device:CPU:)\d+")


def home_device(device: str) -> str:
    """The device on which a core computes: the first CPU of its process for a virtual CPU, else the core's own device.

    The virtual CPUs of a process share its processors and memory. But XLA compiles a function separately for each
    device. So all cores of a process compute on its first CPU. Only collectives use the other CPUs, since each core
    needs its own device in them.

    Examples:
      >>> home_device("/job:localhost/replica:0/task:0/device:CPU:3")
      '/job:localhost/replica:0/task:0/device:CPU:0'
    """
    spec = tf.DeviceSpec.from_string(device)
    return spec.replace(device_index=0).to_string() if spec.device_type == "CPU" else device


def are_virtual_cpus(devices: Iterable[str]) -> bool:
    """Whether all devices are virtual CPUs, of one process or of several.

    Examples:
      >>> are_virtual_cpus(f"/job:worker/replica:0/task:{n}/device:CPU:{n}" for n in range(2))
      True
      >>> are_virtual_cpus(["/job:localhost/replica:0/task:0/device:GPU:0"])
      False
    """
    return all(_VIRTUAL_CPU.fullmatch(device) for device in devices)


def have_one_home(devices: Iterable[str]) -> bool:
    """Whether all devices are virtual CPUs of one process.

    Examples:
      >>> have_one_home(f"/job:localhost/replica:0/task:0/device:CPU:{n}" for n in range(8))
      True
      >>> have_one_home(["/job:localhost/replica:0/task:0/device:GPU:0"])
      False
    """
    found = [_VIRTUAL_CPU.fullmatch(device) for device in devices]
    return None not in found and len({match[1] for match in found if match}) == 1
