"""An accelerator: the cores of one runtime, and their places."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from meshtf.dimension import Shape
from meshtf.errors import DeviceError, counted
from meshtf.layout import Axes
from meshtf.mesh_impl.pjrt.kinds import Kind
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.mesh_impl.tpu.torus import Torus
from meshtf.planning.process_spans import laid_over

if TYPE_CHECKING:
    from meshtf.mesh_impl.pjrt.pjrt import Client, Cores, Device

_NOT_EVEN = """\
mesh [{shape}] has {size}, and {processes} processes with {cores} {kind} take equal parts of it; make the number of \
cores of the mesh a multiple of {processes}{or_larger}"""

_TOO_FEW = "mesh [{shape}] has {size}, and {there}; make the mesh smaller{or_larger}"


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """The cores of one kind that this process can use, with the cores of the processes that it has joined.

    Attributes:
      torus: the torus of a TPU's chips; None for GPUs and for virtual cores, which have no chips.
    """

    kind: Kind
    client: Client
    cores: tuple[Device, ...]
    torus: Torus | None = None

    @classmethod
    def of(cls, kind: Kind, client: Client) -> Accelerator:
        """Makes an accelerator of the cores of all processes of a runtime. TPU cores have places on its torus."""
        if client.platform != "tpu":
            return cls(kind, client, client.devices)
        sizes = [max(place) + 1 for place in zip(*(d.place for d in client.devices), strict=True)]
        chips = sizes[:-1] if sizes[-2] > 1 else sizes[:-2]
        return cls(kind, client, client.devices, Torus(tuple(chips), sizes[-1]))

    @property
    def is_virtual(self) -> bool:
        """Whether the cores are this machine's processors."""
        return self.client.platform == "cpu"

    def __str__(self) -> str:
        if self.torus is not None:
            return f"{self.kind.name} of {self.torus}"
        return f"{'virtual ' * self.is_virtual}{self.kind.name} of {counted(len(self.cores), 'core')}"

    def on(self, shape: Shape, positions: Sequence[tuple[int, ...]] | None, axes_over_processes: Axes = ()) -> Cores:
        """Returns the cores of a mesh: at these positions of the torus, or the first ones.

        If several processes have cores without a torus, each has a block of the mesh. The processes are laid along the
        mesh's axes in order, but along `axes_over_processes` first.

        Raises:
          DeviceError: if there are too few cores, or if processes cannot have equal parts.
        """
        cluster = collective_runtime().cluster
        check = None if cluster is None else cluster.check_complete
        if self.torus is not None and positions is not None:
            rank = len(self.torus.chips)
            by_place: dict[tuple[int, ...], Device] = {(*d.place[:rank], d.place[-1]): d for d in self.cores}
            return self.client.on([by_place[place] for place in positions], check)
        processes = sorted({d.process for d in self.cores})
        own = [[d for d in self.cores if d.process == process] for process in processes]
        self._check_size(shape, own)
        left = list(map(iter, own))
        cores = [next(left[process]) for process in laid_over(shape, len(own), axes_over_processes)]
        return self.client.on(cores, check)

    def _check_size(self, shape: Shape, own: Sequence[Sequence[Device]]) -> None:
        size, or_larger = counted(shape.size, "core"), f", or {self.kind.virtual} larger" if self.is_virtual else ""
        if len(self.cores) < shape.size:
            form = self.kind.counted_virtual if self.is_virtual else self.kind.counted
            there = form.format(number=len(self.cores))
            raise DeviceError(_TOO_FEW.format(shape=shape, size=size, there=there, or_larger=or_larger))
        each, rest = divmod(shape.size, len(own))
        if rest or any(len(cores) < each for cores in own):
            there = " + ".join(str(len(cores)) for cores in own)
            kind = "virtual cores" if self.is_virtual else f"{self.kind.name}s"
            raise DeviceError(
                _NOT_EVEN.format(
                    shape=shape, size=size, processes=len(own), cores=there, kind=kind, or_larger=or_larger
                )
            )
