"""The accelerators of this process. Each is opened on first use, and stays open until the process ends, since it holds
the variables."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import socket
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from meshtf.errors import ClusterError, DeviceError, MeshtfError
from meshtf.mesh_impl.pjrt.accelerator import Accelerator
from meshtf.mesh_impl.pjrt.gpu_setup import GpuSetup
from meshtf.mesh_impl.pjrt.kinds import GPU, TPU, Kind
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf_programs.addresses import Address

if TYPE_CHECKING:
    from meshtf.cluster.cluster import Cluster
    from meshtf.mesh_impl.pjrt.pjrt import Client

_JOIN_SECONDS = 300.0
_HEARTBEATS_TO_LEAVE = 3
_LONGEST_FACT = 600

_NO_TPU = """\
a TPU was asked for, and there is none: the runtime sees none on this machine.
To run the program on virtual cores of one, on this machine's processors, call mtf.virtual_tpu({size}) before the \
first mesh; to lower it for a TPU that is elsewhere, give its torus, as in \
TpuMeshImpl(shape, layout, physical_torus="2x2"); GPUs have meshes of their own, mtf.GpuMeshImpl."""

_NO_RUNTIME = """\
{kind}s, and virtual ones, run through jaxlib, which {fact}.
Install it with: pip install 'meshtf[{extra}]'"""

_NOT_OPENED = """\
the TPU of this machine cannot be opened: {error}
A TPU is one process's at a time: end the one that has it, or wait for its end. To run on virtual cores instead, call \
mtf.virtual_tpu({size}) before the first mesh."""

_JOINED_TOO_LATE = """\
this process has joined a cluster after its {kind} was there, whose cores are those of this process alone.
Call mtf.initialize_cluster before the first mesh."""

_DO_NOT_MEET = """\
the processes of the cluster do not meet at {address}, of process 0, to make their {kind}s one: {error}"""

_CAME_TOO_LATE = """\
{function}({number}) came too late: this process has a {there} already. Call it before the first mesh"""

_OTHER_FRACTION = """\
memory_fraction is {wanted}, and this process's GPUs were opened with {given}. The first mesh of a process decides; \
give every mesh the same"""


class _OfThisProcess:
    """The only accelerator of a kind in a process."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._virtual_cores: int | None = None
        self._memory_fraction: float | None = None
        self._accelerator: Accelerator | None = None
        self._cluster: Cluster | None = None

    def make_virtual(self, cores: int) -> None:
        with self._lock:
            if self._accelerator is None:
                self._virtual_cores = max(cores, self._virtual_cores or 0)
            elif self._virtual_cores is None or self._virtual_cores < cores:
                function, there = self._kind.virtual, self._accelerator
                raise DeviceError(_CAME_TOO_LATE.format(function=function, number=cores, there=there))

    def opened(self, size: int, memory_fraction: float | None) -> Accelerator:
        cluster = collective_runtime().cluster
        with self._lock:
            if self._accelerator is None:
                self._memory_fraction = memory_fraction
                self._accelerator, self._cluster = self._connected(size, cluster), cluster
                if cluster is not None:
                    atexit.register(self._leave)
            if self._cluster is not cluster:
                raise ClusterError(_JOINED_TOO_LATE.format(kind=self._kind.name))
            if memory_fraction not in (None, self._memory_fraction) and not self._accelerator.is_virtual:
                given = self._memory_fraction or "the runtime's own share"
                raise DeviceError(_OTHER_FRACTION.format(wanted=memory_fraction, given=given))
            return self._accelerator

    def _leave(self) -> None:
        """Leaves the other processes, if nothing has failed, once all of them reach their end."""
        if self._accelerator is not None and self._cluster is not None and self._cluster.is_well:
            with contextlib.suppress(MeshtfError):
                self._cluster.gathered("pjrt/end", "", _HEARTBEATS_TO_LEAVE * self._cluster.heartbeat_timeout_seconds)
                self._accelerator.client.leave()

    def _connected(self, size: int, cluster: Cluster | None) -> Accelerator:
        runtime = _runtime(self._kind)
        try:
            client = self._client(runtime, None) if cluster is None else self._joined_client(runtime, cluster)
        except runtime.NotOpenedError as error:
            fact = str(error)[:_LONGEST_FACT]
            if self._kind is GPU:
                raise DeviceError(GpuSetup.of_this_machine().why_none(fact, size)) from None
            raise DeviceError(_NOT_OPENED.format(error=fact, size=size)) from None
        if client is None:
            raise DeviceError(_NO_TPU.format(size=size))
        return Accelerator.of(self._kind, client)

    def _joined_client(self, runtime: Any, cluster: Cluster) -> Client | None:
        with _held_port(cluster) as port:
            processes = runtime.Processes(**_membership(cluster, port))
            try:
                return self._client(runtime, processes)
            except runtime.NotOpenedError:
                raise
            except RuntimeError as error:
                cluster.check_complete()
                address = processes.coordinator
                raise ClusterError(_DO_NOT_MEET.format(address=address, kind=self._kind.name, error=error)) from None

    def _client(self, runtime: Any, processes: Any) -> Client | None:
        if self._virtual_cores is not None:
            return runtime.cpu_client(self._virtual_cores, processes)
        if self._kind is GPU:
            return runtime.gpu_client(processes, self._memory_fraction)
        return runtime.tpu_client(processes)


_PROCESS = {kind.name: _OfThisProcess(kind) for kind in (GPU, TPU)}


def accelerator(kind: Kind, size: int, memory_fraction: float | None = None) -> Accelerator:
    """Returns this process's accelerator of a kind, opened on the first call.

    Args:
      kind: `GPU` or `TPU`.
      size: the number of cores of the mesh that needs it.
      memory_fraction: the share of each GPU's memory that the process reserves. None: the runtime's default.

    Raises:
      DeviceError: if there is none, its runtime is missing, or it was opened with a different share of its memory.
      ClusterError: if the process joined others after opening it, or the others do not join in time.
    """
    return _PROCESS[kind.name].opened(size, memory_fraction)


def make_virtual(kind: Kind, cores: int) -> None:
    """Makes this process's accelerator of a kind consist of virtual cores. Raises DeviceError if it has a real one, or
    too few virtual cores.
    """
    _PROCESS[kind.name].make_virtual(cores)


def _membership(cluster: Cluster, port: int) -> dict[str, Any]:
    """Returns the fields of `pjrt.Processes`. All processes of a cluster call it once, to learn the address of process
    0."""
    host = Address.from_text(cluster.addresses[cluster.process_index]).host
    # This waits until all processes are present, or raises an error that names the missing one. Then jaxlib waits.
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
    """Reserves a port of this host. Servers that share ports, such as gRPC's, can still listen on it."""
    host = Address.from_text(cluster.addresses[cluster.process_index]).host
    family, *_, place = min(socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM), key=lambda found: found[0])
    with socket.socket(family, socket.SOCK_STREAM) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(place)
        yield held.getsockname()[1]


def _runtime(kind: Kind) -> Any:
    """Imports the module that uses jaxlib, an optional dependency. Raises DeviceError without a supported release."""
    try:
        runtime = importlib.import_module("meshtf.mesh_impl.pjrt.pjrt")
    except ImportError as error:
        raise _without(kind, f"is not installed ({error})") from None
    if runtime.RELEASE not in runtime.RELEASES:
        found, *needed = (".".join(map(str, release)) for release in (runtime.RELEASE, *runtime.RELEASES))
        raise _without(kind, f"is of release {found}; meshtf supports {', '.join(needed)}")
    return runtime


def _without(kind: Kind, fact: str) -> DeviceError:
    return DeviceError(_NO_RUNTIME.format(kind=kind.name, fact=fact, extra=kind.extra))
