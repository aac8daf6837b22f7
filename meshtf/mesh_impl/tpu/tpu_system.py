"""The TPU of this process, real or virtual: its cores, where they are, and the runtime that has them."""

from __future__ import annotations

import dataclasses
import importlib
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from meshtf.call_sites import says_where
from meshtf.dimension import Shape
from meshtf.errors import ClusterError, DeviceError, UsageError
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.mesh_impl.tpu.torus import Torus

if TYPE_CHECKING:
    from meshtf.mesh_impl.tpu.pjrt import Client, Cores, Device

_MOST = 4096

_NO_TPU = """\
a TPU was asked for, and there is none: {fact}.
To run the program on virtual cores of one, on this machine's processors, call mtf.virtual_tpu({size}) before the \
first mesh; to lower it for a TPU that is elsewhere, give its torus, as in \
TpuMeshImpl(shape, layout, physical_torus="2x2")."""

_NO_RUNTIME = """\
TPUs, and virtual ones, run through jaxlib, which is not installed ({error}).
Install it with: pip install 'meshtf[tpu]'"""

_NO_CLUSTER = """\
this process has joined a cluster, and a mesh of TPU cores spans no other process: each would train by itself.
Run the program once, without mtf.initialize_cluster, or on an mtf.SpmdMeshImpl."""

_TOO_FEW = (
    "mesh [{shape}] has {size} cores, and the virtual TPU {cores}; make the mesh smaller, or mtf.virtual_tpu larger"
)


@dataclasses.dataclass(frozen=True)
class TpuSystem:
    """A TPU's cores.

    Attributes:
      torus: of its chips; None of a virtual TPU, which has none.
    """

    client: Client
    cores: tuple[Device, ...]
    torus: Torus | None = None

    @classmethod
    def of(cls, client: Client) -> TpuSystem:
        """Of a runtime: on a TPU each core has a place on the torus."""
        if client.platform != "tpu":
            return cls(client, client.devices)
        sizes = [max(place) + 1 for place in zip(*(d.place for d in client.devices), strict=True)]
        chips = sizes[:-1] if sizes[-2] > 1 else sizes[:-2]
        return cls(client, client.devices, Torus(tuple(chips), sizes[-1]))

    def on(self, shape: Shape, positions: Sequence[tuple[int, ...]] | None) -> Cores:
        """The cores of a mesh: at these positions of the torus, or the first that there are.

        Raises:
          DeviceError: a virtual TPU has too few.
        """
        if self.torus is not None and positions is not None:
            rank = len(self.torus.chips)
            by_place: dict[tuple[int, ...], Device] = {(*d.place[:rank], d.place[-1]): d for d in self.cores}
            return self.client.on([by_place[place] for place in positions])
        if len(self.cores) < shape.size:
            raise DeviceError(_TOO_FEW.format(shape=shape, size=shape.size, cores=len(self.cores)))
        return self.client.on(self.cores[: shape.size])


class _OfThisProcess:
    """The one TPU of a process: connected to when it is first asked for, and for as long as the process lives, since
    it holds the variables."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._virtual_cores: int | None = None
        self._system: TpuSystem | None = None

    def make_virtual(self, cores: int) -> None:
        with self._lock:
            if self._system is None:
                self._virtual_cores = max(cores, self._virtual_cores or 0)
            elif self._virtual_cores is None or self._virtual_cores < cores:
                raise DeviceError(
                    f"mtf.virtual_tpu({cores}) came too late: this process has a {_kind(self._system)} already. Call "
                    f"it before the first mesh"
                )

    def system(self, size: int) -> TpuSystem:
        with self._lock:
            if self._system is None:
                self._system = self._connected(size)
            return self._system

    def _connected(self, size: int) -> TpuSystem:
        runtime = _runtime()
        if self._virtual_cores is not None:
            return TpuSystem.of(runtime.cpu_client(self._virtual_cores))
        client = runtime.accelerator_client()
        if client is None:
            raise DeviceError(_NO_TPU.format(fact="the runtime sees none on this machine", size=size))
        return TpuSystem.of(client)


_PROCESS = _OfThisProcess()


def tpu_system(size: int) -> TpuSystem:
    """The TPU of this process; `size`: of the mesh that needs it.

    Raises:
      DeviceError: there is none, or nothing to run it with.
      ClusterError: the process has joined others, with which meshes of TPUs share nothing.
    """
    if collective_runtime().cluster is not None:
        raise ClusterError(_NO_CLUSTER)
    return _PROCESS.system(size)


@says_where
def virtual_tpu(n: int) -> None:
    """Gives this process a TPU of `n` virtual cores, which run on this machine's processors.

    Programs on an `mtf.TpuMeshImpl` are compiled by XLA for its CPUs then, and run through PJRT, as on a TPU. To be
    called before the first mesh. Nothing is changed where there are as many already.

    Raises:
      DeviceError: the process has another TPU already, or `n` is less than 1 or more than 4,096.
      UsageError: `n` is no whole number.

    Examples:
      >>> mtf.virtual_tpu(8)
      >>> mtf.TpuMeshImpl("rows:2;cols:2", "batch:rows").size
      4
    """
    if not isinstance(n, int | np.integer) or isinstance(n, bool):
        raise UsageError(f"mtf.virtual_tpu({n!r}): the number of cores is a whole number, as in mtf.virtual_tpu(8)")
    if not 1 <= n <= _MOST:
        raise DeviceError(f"mtf.virtual_tpu({n}): a virtual TPU has from 1 to {_MOST:,} cores")
    _PROCESS.make_virtual(int(n))


def _kind(system: TpuSystem) -> str:
    return f"virtual TPU of {len(system.cores)} cores" if system.torus is None else f"TPU of {system.torus}"


def _runtime() -> Any:
    """The module that owns jaxlib, which is an optional dependency."""
    try:
        return importlib.import_module("meshtf.mesh_impl.tpu.pjrt")
    except ImportError as error:
        raise DeviceError(_NO_RUNTIME.format(error=error)) from None
