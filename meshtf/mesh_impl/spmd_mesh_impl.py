"""A mesh of logical devices, on which one per-core program runs with TensorFlow's collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import tensorflow as tf

from meshtf.axis_parts import AxisParts
from meshtf.call_sites import says_where
from meshtf.dimension import Shape, ShapeLike
from meshtf.errors import DeviceError, nearest
from meshtf.layout import LayoutLike, LayoutRules
from meshtf.mesh_impl.mesh_impl import BUCKET_BYTES, lay_out

_TOO_FEW = """\
mesh [{shape}] has {size} cores, and TensorFlow has {cpus} logical CPU{s} and {gpus} logical GPUs.
Add, before the first TensorFlow op and the first mesh:
    mtf.virtual_cpus({size})
or make the mesh smaller."""


@final
class SpmdMeshImpl:
    """A mesh shape on devices, and the layout of tensors over it.

    Attributes:
      shape: the mesh's named shape.
      layout_rules: which dimension is split over which mesh axes.
      parameter_layout: the same for parameters and optimizer state as they are kept between steps, or None (attribute
        `parameter_layout_rules`).
      axis_parts: none; inside a program, which axes `shape` has in parts.
      devices: names of the devices, by core number (row-major over the mesh's axes).
      shard_weight_update: whether cores that would repeat an update of weights divide it among themselves.
      bucket_bytes: small collectives travel together in buckets of at most so many bytes of each core; 0: each alone.
      gradient_sum_dtype: in which gradients are summed over cores, tf.float32 or tf.bfloat16; None: each in its own.
      collective_timeout_seconds: how long a device may wait in one collective before the step is ended.

    Examples:
      >>> mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows;hidden:cols")
      >>> mesh_impl.shape, len(mesh_impl.devices)
      (Shape[rows:2 cols:2], 4)
    """

    shape: Shape
    axis_parts: AxisParts
    layout_rules: LayoutRules
    parameter_layout_rules: LayoutRules | None
    shard_weight_update: bool
    bucket_bytes: int
    gradient_sum_dtype: tf.DType | None

    @says_where
    def __init__(
        self,
        shape: ShapeLike,
        layout_rules: LayoutLike,
        devices: Sequence[str] | None = None,
        *,
        parameter_layout: LayoutLike | None = None,
        shard_weight_update: bool = True,
        bucket_bytes: int = BUCKET_BYTES,
        gradient_sum_dtype: tf.DType | None = None,
        collective_timeout_seconds: float = 300,
    ) -> None:
        """`devices` are by default the first GPUs if there are enough of them, else the first CPUs.

        Raises:
          DeviceError: for a device that does not exist or stands twice, or a number other than that of cores.
          LayoutError: for a rule with an axis that the mesh does not have.
          UsageError: for `bucket_bytes` that are no number of bytes, or another `gradient_sum_dtype`.
        """
        lay_out(
            self,
            shape,
            layout_rules,
            parameter_layout,
            shard_weight_update=shard_weight_update,
            bucket_bytes=bucket_bytes,
            gradient_sum_dtype=gradient_sum_dtype,
        )
        if not collective_timeout_seconds > 0:
            raise DeviceError(f"collective_timeout_seconds must be positive, and is {collective_timeout_seconds}")
        self.devices = _default_devices(self.shape) if devices is None else _checked_devices(self.shape, devices)
        self.collective_timeout_seconds = float(collective_timeout_seconds)

    @property
    def size(self) -> int:
        """Number of cores."""
        return self.shape.size

    @property
    def ndims(self) -> int:
        """Number of mesh axes."""
        return self.shape.ndims

    def __repr__(self) -> str:
        return f'SpmdMeshImpl("{self.shape}", "{self.layout_rules}", devices={list(self.devices)})'


def device_order(name: str) -> tuple[str, int, int, str, int]:
    """Sorts devices as TensorFlow ranks the members of a group."""
    spec = tf.DeviceSpec.from_string(name)
    return spec.job or "", spec.replica or 0, spec.task or 0, spec.device_type or "", spec.device_index or 0


def _default_devices(shape: Shape) -> tuple[str, ...]:
    names = {kind: [d.name for d in tf.config.list_logical_devices(kind)] for kind in ("GPU", "CPU")}
    for kind in ("GPU", "CPU"):
        if len(names[kind]) >= shape.size:
            return tuple(names[kind][: shape.size])
    cpus = len(names["CPU"])
    raise DeviceError(
        _TOO_FEW.format(shape=shape, size=shape.size, cpus=cpus, s="" if cpus == 1 else "s", gpus=len(names["GPU"]))
    )


def _checked_devices(shape: Shape, devices: Sequence[str]) -> tuple[str, ...]:
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
