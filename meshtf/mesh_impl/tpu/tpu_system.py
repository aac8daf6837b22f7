"""The TPU of this process, real or virtual: its cores, where they are, and the runtime that has them."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import importlib
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from meshtf.call_sites import says_where
from meshtf.dimension import Shape
from meshtf.errors import ClusterError, DeviceError, MeshtfError, UsageError, counted
from meshtf.layout import Axes
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.mesh_impl.tpu.torus import Torus
from meshtf.planning.process_spans import laid_over
from meshtf_programs.addresses import Address

if TYPE_CHECKING:
    from meshtf.cluster.cluster import Cluster
    from meshtf.mesh_impl.tpu.pjrt import Client, Cores, Device

_MOST = 4096
_JOIN_SECONDS = 300.0
_HEARTBEATS_TO_LEAVE = 3
_LONGEST_FACT = 600

_NO_TPU = """\
a TPU was asked for, and there is none: {fact}.
To run the program on virtual cores of one, on this machine's processors, call mtf.virtual_tpu({size}) before the \
first mesh; to lower it for a TPU that is elsewhere, give its torus, as in \
TpuMeshImpl(shape, layout, physical_torus="2x2")."""

_NO_RUNTIME = """\
TPUs, and virtual ones, run through jaxlib, which is not installed ({error}).
Install it with: pip install 'meshtf[tpu]'"""

_NOT_OPENED = """\
the TPU of this machine cannot be opened: {error}
A TPU is one process's at a time: end the one that has it, or wait for its end. To run on virtual cores instead, call \
mtf.virtual_tpu({size}) before the first mesh."""

_JOINED_TOO_LATE = """\
this process has joined a cluster after its TPU was there, whose cores are those of this process alone.
Call mtf.initialize_cluster before the first mesh."""

_DO_NOT_MEET = """\
the processes of the cluster do not meet at {address}, of process 0, to make their TPUs one: {error}"""

_NOT_EVEN = """\
mesh [{shape}] has {size}, and {processes} processes with {cores} virtual ones take equal parts of it; make the \
number of cores of the mesh a multiple of {processes}, and mtf.virtual_tpu as large in each process"""

_TOO_FEW = "mesh [{shape}] has {size}, and the virtual TPU {cores}; make the mesh smaller, or mtf.virtual_tpu larger"


@dataclasses.dataclass(frozen=True)
class TpuSystem:
    """A TPU's cores.

    Attributes:
      torus: the torus of its chips; None for a virtual TPU, which has no chips.
    """

    client: Client
    cores: tuple[Device, ...]
    torus: Torus | None = None

    @classmethod
    def of(cls, client: Client) -> TpuSystem:
        """The system of a runtime, with the cores of all its processes. On a TPU each core has a place on the torus."""
        if client.platform != "tpu":
            return cls(client, client.devices)
        sizes = [max(place) + 1 for place in zip(*(d.place for d in client.devices), strict=True)]
        chips = sizes[:-1] if sizes[-2] > 1 else sizes[:-2]
        return cls(client, client.devices, Torus(tuple(chips), sizes[-1]))

    def on(self, shape: Shape, positions: Sequence[tuple[int, ...]] | None, axes_over_processes: Axes = ()) -> Cores:
        """The cores of a mesh: at these positions of the torus, or the first that there are.

        If a virtual TPU has several processes, each has a block of the mesh. The processes lie along the axes in their
        order, but along `axes_over_processes` first.

        Raises:
          DeviceError: a virtual TPU has too few, or processes cannot have equal parts.
        """
        cluster = collective_runtime().cluster
        check = None if cluster is None else cluster.check_complete
        if self.torus is not None and positions is not None:
            rank = len(self.torus.chips)
            by_place: dict[tuple[int, ...], Device] = {(*d.place[:rank], d.place[-1]): d for d in self.cores}
            return self.client.on([by_place[place] for place in positions], check)
        if len(self.cores) < shape.size:
            raise DeviceError(_TOO_FEW.format(shape=shape, size=counted(shape.size, "core"), cores=len(self.cores)))
        own = [[d for d in self.cores if d.process == process] for process in sorted({d.process for d in self.cores})]
        each, rest = divmod(shape.size, len(own))
        if rest or any(len(cores) < each for cores in own):
            there = " + ".join(str(len(cores)) for cores in own)
            raise DeviceError(
                _NOT_EVEN.format(shape=shape, size=counted(shape.size, "core"), processes=len(own), cores=there)
            )
        left = list(map(iter, own))
        cores = [next(left[process]) for process in laid_over(shape, len(own), axes_over_processes)]
        return self.client.on(cores, check)


class _OfThisProcess:
    """The one TPU of a process: connected to when it is first asked for, and for as long as the process lives, since
    it holds the variables."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._virtual_cores: int | None = None
        self._system: TpuSystem | None = None
        self._cluster: Cluster | None = None

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
        cluster = collective_runtime().cluster
        with self._lock:
            if self._system is None:
                self._system, self._cluster = self._connected(size, cluster), cluster
                if cluster is not None:
                    atexit.register(self._leave)
            if self._cluster is not cluster:
                raise ClusterError(_JOINED_TOO_LATE)
            return self._system

    def _leave(self) -> None:
        """Where nothing has failed, and all have come to their ends."""
        if self._system is not None and self._cluster is not None and self._cluster.is_well:
            with contextlib.suppress(MeshtfError):
                self._cluster.gathered("pjrt/end", "", _HEARTBEATS_TO_LEAVE * self._cluster.heartbeat_timeout_seconds)
                self._system.client.leave()

    def _connected(self, size: int, cluster: Cluster | None) -> TpuSystem:
        runtime = _runtime()
        try:
            client = self._client(runtime, None) if cluster is None else self._joined_client(runtime, cluster)
        except runtime.NotOpenedError as error:
            raise DeviceError(_NOT_OPENED.format(error=str(error)[:_LONGEST_FACT], size=size)) from None
        if client is None:
            raise DeviceError(_NO_TPU.format(fact="the runtime sees none on this machine", size=size))
        return TpuSystem.of(client)

    def _joined_client(self, runtime: Any, cluster: Cluster) -> Client | None:
        with _held_port(cluster) as port:
            processes = runtime.Processes(**_membership(cluster, port))
            try:
                return self._client(runtime, processes)
            except runtime.NotOpenedError:
                raise
            except RuntimeError as error:
                cluster.check_complete()
                raise ClusterError(_DO_NOT_MEET.format(address=processes.coordinator, error=error)) from None

    def _client(self, runtime: Any, processes: Any) -> Client | None:
        if self._virtual_cores is None:
            return runtime.accelerator_client(processes)
        return runtime.cpu_client(self._virtual_cores, processes)


_PROCESS = _OfThisProcess()


def tpu_system(size: int) -> TpuSystem:
    """The TPU of this process; `size`: of the mesh that needs it.

    Raises:
      DeviceError: there is none, or nothing to run it with.
      ClusterError: the process has joined others since it has one; or those do not come.
    """
    return _PROCESS.system(size)


def _membership(cluster: Cluster, port: int) -> dict[str, Any]:
    """The fields of `pjrt.Processes`. Called by all processes of a cluster, once: process 0 says where it listens."""
    host = Address.from_text(cluster.addresses[cluster.process_index]).host
    # Here all processes are there, or an error says who is gone. After this, jaxlib waits for each by itself.
    told = cluster.gathered("pjrt", str(Address(host, port)) if cluster.is_leader else "", _JOIN_SECONDS)
    return {
        "index": cluster.process_index,
        "count": cluster.num_processes,
        "coordinator": told[0],
        "host": host,
        "loss_seconds": _HEARTBEATS_TO_LEAVE * cluster.heartbeat_timeout_seconds,
    }


@contextlib.contextmanager
def _held_port(cluster: Cluster) -> Iterator[int]:
    """A port of this host, which nobody else is given meanwhile: what listens there shares it, as gRPC's servers do."""
    host = Address.from_text(cluster.addresses[cluster.process_index]).host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((host, 0))
        yield held.getsockname()[1]


@says_where
def virtual_tpu(n: int) -> None:
    """Gives this process a TPU of `n` virtual cores, which run on this machine's processors.

    XLA then compiles programs on an `mtf.TpuMeshImpl` for CPUs, and PJRT runs them, as on a TPU. Call it before the
    first mesh. Nothing is changed if there are as many cores already. In a cluster (`mtf.initialize_cluster`) each
    process calls it, and meshes span the cores of all processes.

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
    return f"virtual TPU of {counted(len(system.cores), 'core')}" if system.torus is None else f"TPU of {system.torus}"


def _runtime() -> Any:
    """The module that owns jaxlib, which is an optional dependency."""
    try:
        return importlib.import_module("meshtf.mesh_impl.tpu.pjrt")
    except ImportError as error:
        raise DeviceError(_NO_RUNTIME.format(error=error)) from None
