"""Mesh shapes with an open size, which depends on the number of devices: "data:*;model:2"."""

from __future__ import annotations

import dataclasses
import math
from typing import TypeGuard

from meshtf.dimension import Shape, ShapeLike, convert_to_shape
from meshtf.dimension.dimension import parse_pairs
from meshtf.errors import DeviceError, ShapeError, counted

OPEN = "*"

_TOO_FEW = "mesh [{rule}] has at least {least}, and {devices}"
_DOES_NOT_FIT = """\
mesh [{rule}] has a multiple of {least} cores, and of {processes} processes each has as many of them, {most} at most: \
there is no such number. Other sizes, or another number of processes, would do"""


def is_open(x: ShapeLike) -> TypeGuard[str]:
    """Whether a mesh shape is a text with an open size."""
    return isinstance(x, str) and OPEN in x


@dataclasses.dataclass(frozen=True)
class MeshShapeRule:
    """A mesh shape of which one size may be open, until the number of devices is known.

    Attributes:
      axes: names and sizes. At most one size is None, which means open.
    """

    axes: tuple[tuple[str, int | None], ...]

    @classmethod
    def parse(cls, x: ShapeLike) -> MeshShapeRule:
        """Parses text such as "data:*;model:2", or converts any mesh shape.

        Raises:
          ShapeError: `x` is not a mesh shape, or has two open sizes.
        """
        if not is_open(x):
            return cls(tuple((d.name, d.size) for d in convert_to_shape(x)))
        pairs = parse_pairs(x, r"\d{1,18}|\*", "name:size, or name:* for an axis as long as the devices allow")
        names = [name for name, size in pairs if size == OPEN]
        if len(names) > 1:
            raise ShapeError(f"only one axis can be as long as the devices allow: {', '.join(names)} are, in {x!r}")
        rule = cls(tuple((name, None if size == OPEN else int(size)) for name, size in pairs))
        if rule._shape(1).size < 1:  # this also refuses repeated names
            raise DeviceError(f"mesh [{rule}] has no cores; every axis has at least size 1")
        return rule

    @property
    def is_open(self) -> bool:
        """Whether a size is open."""
        return any(size is None for _, size in self.axes)

    def shape(self, num_devices: int) -> Shape:
        """The largest mesh for this many devices, or the only mesh if no size is open.

        Raises:
          DeviceError: there are too few devices for the given sizes.
        """
        if self.is_open and num_devices < self._least:
            devices = "1 device is" if num_devices == 1 else f"{num_devices} devices are"
            raise DeviceError(
                _TOO_FEW.format(rule=self, least=counted(self._least, "core"), devices=f"{devices} there")
            )
        return self._shape(num_devices // self._least if self.is_open else 0)

    def shape_over(self, num_processes: int, devices_of_each: int) -> Shape:
        """The largest mesh of which each process has an equal part, on at most `devices_of_each` devices.

        Raises:
          DeviceError: there is no such mesh.
        """
        for each in range(devices_of_each, 0, -1) if self.is_open else ():
            if num_processes * each % self._least == 0:
                return self.shape(num_processes * each)
        if self.is_open:
            text = _DOES_NOT_FIT.format(rule=self, least=self._least, processes=num_processes, most=devices_of_each)
            raise DeviceError(text)
        return self._shape(0)

    @property
    def _least(self) -> int:
        """The number of cores if the open size is 1."""
        return math.prod(size for _, size in self.axes if size is not None)

    def _shape(self, open_size: int) -> Shape:
        return Shape([(name, open_size if size is None else size) for name, size in self.axes])

    def __str__(self) -> str:
        return " ".join(f"{name}:{OPEN if size is None else size}" for name, size in self.axes)
