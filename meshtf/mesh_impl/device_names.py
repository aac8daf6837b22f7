"""The devices of a mesh, as TensorFlow names and orders them."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.errors import DeviceError, nearest

_TOO_FEW = """\
mesh [{shape}] has {size} cores, and TensorFlow has {cpus} logical CPU{s} and {gpus} logical GPUs.
Add, before the first TensorFlow op and the first mesh:
    mtf.virtual_cpus({size})
or make the mesh smaller."""


def device_order(name: str) -> tuple[str, int, int, str, int]:
    """Sorts devices as TensorFlow ranks the members of a group."""
    spec = tf.DeviceSpec.from_string(name)
    return spec.job or "", spec.replica or 0, spec.task or 0, spec.device_type or "", spec.device_index or 0


def default_devices(shape: Shape) -> tuple[str, ...]:
    """The first GPUs if a mesh has no more cores than there are, else the first CPUs. DeviceError with too few."""
    names = {kind: [d.name for d in tf.config.list_logical_devices(kind)] for kind in ("GPU", "CPU")}
    for kind in ("GPU", "CPU"):
        if len(names[kind]) >= shape.size:
            return tuple(names[kind][: shape.size])
    cpus = len(names["CPU"])
    raise DeviceError(
        _TOO_FEW.format(shape=shape, size=shape.size, cpus=cpus, s="" if cpus == 1 else "s", gpus=len(names["GPU"]))
    )


def checked_devices(shape: Shape, devices: Sequence[str]) -> tuple[str, ...]:
    """The full names of the devices of a mesh. DeviceError for one that is not there, twice, too few, too many."""
    if isinstance(devices, str):
        raise DeviceError(f"devices must be a list of names, one for each core, and not the text {devices!r}")
    names = [d.name for d in tf.config.list_logical_devices()]
    found = [_find(str(device), names) for device in devices]
    unknown = [f"{d!r}{nearest(str(d), names)}" for d, name in zip(devices, found, strict=True) if name is None]
    if unknown:
        raise DeviceError(f"no such device: {', '.join(unknown)}; TensorFlow has {', '.join(names)}{_hint(shape)}")
    twice = sorted({name for name in found if name and found.count(name) > 1}, key=device_order)
    if twice:
        raise DeviceError(f"given for more than one core: {', '.join(twice)}; each core needs a device of its own")
    if len(found) != shape.size:
        raise DeviceError(f"mesh [{shape}] has {shape.size} cores, and {len(found)} devices were given for it")
    return tuple(name for name in found if name)


def _hint(shape: Shape) -> str:
    return f"; more CPUs come from mtf.virtual_cpus({shape.size}), called before the first TensorFlow op and mesh"


def _find(device: str, names: Sequence[str]) -> str | None:
    """The full name of a device that may be given as "CPU:3", "/cpu:3" or in full; None if there is none."""
    text = device if device.startswith("/") else f"/device:{device}"
    try:
        wanted = tf.DeviceSpec.from_string(text)
    except ValueError:
        return None
    if wanted.device_type is None or wanted.device_index is None:
        return None
    return next((name for name in names if _is(tf.DeviceSpec.from_string(name), wanted)), None)


def _is(have: tf.DeviceSpec, wanted: tf.DeviceSpec) -> bool:
    """Whether a device is the wanted one, of which parts may be left out."""
    local = {"job": "localhost", "replica": 0, "task": 0}
    for part in ("job", "replica", "task", "device_type", "device_index"):
        value = getattr(have, part)
        if getattr(wanted, part) not in (None, local.get(part) if value is None else value):
            return False
    return True
