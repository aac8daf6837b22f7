"""The devices of a mesh, by TensorFlow's names and in its order."""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape, ShapeLike
from meshtf.errors import DeviceError, counted, nearest
from meshtf.layout import Axes
from meshtf.mesh_impl.mesh_shape_rule import MeshShapeRule, is_open
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.planning.process_spans import ProcessOfCore, laid_over

_TASK = re.compile(r"/task:(\d+)")

_Parts: TypeAlias = tuple[str, int, int, str | None, int | None]

_TOO_FEW = """\
mesh [{shape}] has {size}, and {where} {cpus} and {gpus}.
Add, before {before}:
    mtf.virtual_cpus({each})
or make the mesh smaller."""
_BEFORE = "the first TensorFlow op and the first mesh"


def device_order(name: str) -> tuple[str, int, int, str, int]:
    """The sort key by which TensorFlow ranks the devices of a group."""
    spec = tf.DeviceSpec.from_string(name)
    return spec.job or "", spec.replica or 0, spec.task or 0, spec.device_type or "", spec.device_index or 0


def process_of(device: str) -> int:
    """The process of a device: the task in its full name, else 0."""
    task = _TASK.search(device)
    return int(task[1]) if task else 0


def local_cores(devices: Sequence[str]) -> list[int]:
    """The cores whose devices are in this process. These are all cores if it has not joined a cluster."""
    cluster = collective_runtime().cluster
    own = 0 if cluster is None else cluster.process_index
    return [core for core, device in enumerate(devices) if process_of(device) == own]


def default_devices(shape: Shape, axes_over_processes: Axes = ()) -> tuple[str, ...]:
    """The first GPUs if there are enough for the mesh, else the first CPUs. Raises DeviceError if there are too few.

    In a cluster, each process provides the same number, for a block of the mesh. The processes are laid along the
    mesh's axes in order, but along `axes_over_processes` first.
    """
    names = {kind: _by_process(kind) for kind in ("GPU", "CPU")}
    for kind in ("GPU", "CPU"):
        if sum(map(len, names[kind])) >= shape.size:
            if len(names[kind]) == 1:  # one process has all devices, so no axis spans processes
                return tuple(names[kind][0][: shape.size])
            _check_even(names[kind], shape)
            return _of_each(names[kind], laid_over(shape, len(names[kind]), axes_over_processes))
    cpus, gpus = (sum(map(len, names[kind])) for kind in ("CPU", "GPU"))
    processes = len(names["CPU"])
    raise DeviceError(
        _TOO_FEW.format(
            shape=shape,
            size=counted(shape.size, "core"),
            where="TensorFlow has" if processes == 1 else f"the cluster of {processes} processes has",
            cpus=counted(cpus, "logical CPU"),
            gpus=counted(gpus, "logical GPU"),
            before=_BEFORE if processes == 1 else "mtf.initialize_cluster() in each process",
            each=math.ceil(shape.size / processes),
        )
    )


def _by_process(kind: str) -> list[list[str]]:
    """All devices of a kind, as a list for each process, in the order of the processes."""
    found: dict[int, list[str]] = {}
    for name in sorted((d.name for d in tf.config.list_logical_devices(kind)), key=device_order):
        found.setdefault(process_of(name), []).append(name)
    return list(found.values())


def _check_even(names: Sequence[Sequence[str]], shape: Shape) -> None:
    each, rest = divmod(shape.size, len(names))
    if rest or any(len(own) < each for own in names):
        devices = " + ".join(str(len(own)) for own in names)
        raise DeviceError(
            f"mesh [{shape}] has {counted(shape.size, 'core')}, and the cluster "
            f"{counted(len(names), 'process', 'processes')} with {devices} devices; each takes an equal part of a "
            f"mesh. Make the number of cores a multiple of {len(names)}, or give devices= for a mesh of one process"
        )


def _of_each(names: Sequence[Sequence[str]], process_of_core: ProcessOfCore) -> tuple[str, ...]:
    """The device of each core. The cores of a process use the devices of that process in order."""
    left = [iter(own) for own in names]
    return tuple(next(left[process]) for process in process_of_core)


def shape_on_devices(shape: ShapeLike, devices: Sequence[str] | None) -> ShapeLike:
    """A mesh shape in which an open size ("*") is replaced, by the number of these devices, or of all GPUs or CPUs.

    Raises:
      DeviceError: the devices are no list, there are too few, or processes cannot have equal parts.
    """
    if devices is not None and (isinstance(devices, str) or not isinstance(devices, Sequence | np.ndarray)):
        what = f"the text {devices!r}" if isinstance(devices, str) else repr(devices)
        raise DeviceError(f"devices must be a list of names, one for each core, and not {what}")
    if not is_open(shape):
        return shape
    rule = MeshShapeRule.parse(shape)
    if devices is not None:
        return rule.shape(len(devices))
    names = _by_process("GPU") or _by_process("CPU")
    return rule.shape_over(len(names), min(map(len, names)))


def checked_devices(shape: Shape, devices: Sequence[str]) -> tuple[str, ...]:
    """The full names of a mesh's devices. Raises DeviceError if one is missing or repeated, or the number is wrong."""
    names = [d.name for d in tf.config.list_logical_devices()]
    by_spec = {_parts(tf.DeviceSpec.from_string(name)): name for name in names}
    found = [_find(str(device), by_spec) for device in devices]
    unknown = [f"{d!r}{nearest(str(d), names)}" for d, name in zip(devices, found, strict=True) if name is None]
    if unknown:
        raise DeviceError(f"no such device: {', '.join(unknown)}; TensorFlow has {', '.join(names)}{_hint(shape)}")
    times = collections.Counter(found)
    twice = sorted((name for name, count in times.items() if name and count > 1), key=device_order)
    if twice:
        raise DeviceError(f"given for more than one core: {', '.join(twice)}; each core needs a device of its own")
    if len(found) != shape.size:
        verb = "was" if len(found) == 1 else "were"
        raise DeviceError(
            f"mesh [{shape}] has {counted(shape.size, 'core')}, and {counted(len(found), 'device')} {verb} given for it"
        )
    return tuple(name for name in found if name)


def _hint(shape: Shape) -> str:
    return f"; more CPUs come from mtf.virtual_cpus({shape.size}), called before {_BEFORE}"


def _find(device: str, by_spec: Mapping[_Parts, str]) -> str | None:
    """The full name of a device written as "CPU:3", "/cpu:3" or in full; None if there is no such device."""
    text = device if device.startswith("/") else f"/device:{device}"
    try:
        wanted = tf.DeviceSpec.from_string(text)
    except ValueError:
        return None
    if wanted.device_type is None or wanted.device_index is None:
        return None
    if (own := _parts(wanted)) in by_spec:
        return by_spec[own]
    return next((name for parts, name in by_spec.items() if _agree(parts, wanted)), None)


def _parts(spec: tf.DeviceSpec) -> _Parts:
    """The parts of a device's name. Missing job, replica and task are those of this process."""
    job = "localhost" if spec.job is None else spec.job
    return job, spec.replica or 0, spec.task or 0, spec.device_type, spec.device_index


def _agree(parts: _Parts, wanted: tf.DeviceSpec) -> bool:
    """Whether a device matches the wanted one, whose name may lack parts."""
    given = (wanted.job, wanted.replica, wanted.task, wanted.device_type, wanted.device_index)
    return all(part is None or part == own for part, own in zip(given, parts, strict=True))
