"""Connects this process with others to a cluster."""

from __future__ import annotations

import atexit
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.call_sites import says_where
from meshtf.cluster._failure_news import FailureNews
from meshtf.cluster._peer_watch import Lost, PeerWatch
from meshtf.cluster._rendezvous import JoinOptions, rendezvous
from meshtf.cluster._stall_monitor import Activity, OwnStand, StallMonitor
from meshtf.cluster._tensorflow_server import KeyValueStore, abort_collectives, check_not_started, start_server
from meshtf.cluster.cluster import Cluster
from meshtf.cluster.environments import addresses_from
from meshtf.cluster.process_addresses import ProcessAddresses
from meshtf.errors import ClusterError
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf.number_checks import is_number, is_seed
from meshtf_programs.addresses import LARGEST_PORT


@says_where
def initialize_cluster(
    addresses: Sequence[str] | None = None,
    process_index: int | None = None,
    *,
    leader: str | None = None,
    num_processes: int | None = None,
    token: str = "",
    join_timeout_seconds: float = 300.0,
    heartbeat_timeout_seconds: float = 10.0,
    listen_port: int | None = None,
) -> Cluster:
    """Joins this process with others, so that meshes span the devices of all.

    Call it once in each process, before TensorFlow starts, and after `mtf.virtual_cpus`.

    Arguments or environment variables name the other processes. meshtf-launch, Open MPI and Slurm set such variables.
    `TF_CONFIG` is another, and so are torchrun's `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`. All processes
    must have the same number of devices.

    TensorFlow's runtime transfers the values, without passwords and encryption. Anyone who can reach a process's port
    can run computations in it. So use it only in a private network.

    Args:
      addresses: the addresses of all processes, as "host:port", in the order of their indices. Needs `process_index`.
      process_index: the index of this process, from 0.
      leader: the address of process 0, if the other addresses are not known before. Each process sends its own when it
        joins. Needs `process_index` and `num_processes`, or Open MPI's or Slurm's variables.
      num_processes: how many processes there are. Needs `leader`.
      token: a secret text that all share. A process without it is refused.
      join_timeout_seconds: how long to wait for all.
      heartbeat_timeout_seconds: the time after which a process that does not answer counts as lost.
      listen_port: the port on which this process listens, if its address belongs to something that forwards to it, such
        as a container's host. The default is the port in its address.

    Raises:
      ClusterError: if addresses are wrong or contradict each other, or if a process did not join (the message has its
        host and port). Also if a port is in use or another job has it, a token differs, or TensorFlow has started.

    Examples:
      >>> try:
      ...     cluster = mtf.initialize_cluster(["10.0.0.1:4000", "10.0.0.2:4000"], process_index=2)
      ... except mtf.errors.ClusterError as error:
      ...     print(str(error).splitlines()[0])
      initialize_cluster: process 2 does not exist: there are 2, counted from 0
    """
    _check_kinds(
        seconds={"join_timeout_seconds": join_timeout_seconds, "heartbeat_timeout_seconds": heartbeat_timeout_seconds},
        numbers={"process_index": process_index, "num_processes": num_processes, "listen_port": listen_port},
        token=token,
    )
    processes = _processes(addresses, process_index, leader, num_processes)
    check_not_started()
    joined = rendezvous(processes, JoinOptions(token or processes.token, join_timeout_seconds, _facts(), listen_port))
    start_server(joined.addresses, processes.process_index, joined.port, heartbeat_timeout_seconds)
    others = {i: a for i, a in enumerate(joined.addresses) if i != processes.process_index}
    store, activity, own = KeyValueStore(heartbeat_timeout_seconds), Activity(), processes.process_index
    news = FailureNews(store, own, joined.addresses)
    watch = PeerWatch(others, heartbeat_timeout_seconds, _on_lost, news.hear) if others else None
    stall_monitor = StallMonitor(own, joined.addresses, store, OwnStand(collective_runtime(), activity).look)
    cluster = Cluster(own, joined.addresses, heartbeat_timeout_seconds, store, watch, stall_monitor, activity)
    if watch is not None:
        watch.start()
    try:
        _check_one_start(cluster, joined.nonce, join_timeout_seconds)
    except ClusterError:
        if watch is not None:
            watch.stop()
        raise
    collective_runtime().join(cluster)
    if watch is not None:
        stall_monitor.start()
    atexit.register(cluster.leave)
    return cluster


def _check_kinds(*, seconds: Mapping[str, object], numbers: Mapping[str, Any], token: object) -> None:
    """Raises ClusterError for an argument of a wrong kind, such as the text of an environment variable."""
    for name, value in seconds.items():
        if not is_number(value) or value <= 0:
            raise ClusterError(f"{name} must be a positive number, and is {value!r}")
    for name, value in numbers.items():
        if value is not None and not is_seed(value):
            raise ClusterError(f"{name} must be a whole number, and is {value!r}")
    port = numbers["listen_port"]
    if port is not None and not 0 < port <= LARGEST_PORT:
        raise ClusterError(f"listen_port must be from 1 to {LARGEST_PORT}, and is {port}")
    if not isinstance(token, str):
        raise ClusterError(f"token must be a text, and is of type {type(token).__name__}")


def _processes(
    addresses: Sequence[str] | None, process_index: int | None, leader: str | None, num_processes: int | None
) -> ProcessAddresses:
    source = "initialize_cluster"
    if addresses is not None:
        if isinstance(addresses, str) or not isinstance(addresses, Sequence | np.ndarray):
            raise ClusterError(f'addresses must be a list, one "host:port" for each process, not {addresses!r}')
        if process_index is None:
            raise ClusterError("addresses say where the processes are; process_index must say which this one is")
        if leader not in (None, *addresses[:1]) or num_processes not in (None, len(addresses)):
            raise ClusterError(
                "addresses already give the leader and the number of processes; leader and num_processes differ "
                "from them"
            )
        return ProcessAddresses.listed(list(addresses), process_index, source)
    if process_index is None and num_processes is None:
        return addresses_from(os.environ, leader)
    if process_index is None or num_processes is None or leader is None:
        raise ClusterError("give leader, num_processes and process_index together, or addresses instead")
    return ProcessAddresses(process_index, num_processes, leader, None, source)


def _facts() -> dict[str, str]:
    """Returns the facts that must be the same in every process. Otherwise collectives between them would be wrong."""
    kinds = {kind: len(_logical(kind)) for kind in ("CPU", "GPU")}
    return {
        "devices": ", ".join(f"{number} {kind}" for kind, number in kinds.items() if number),
        "versions": f"Python {platform.python_version()}, TensorFlow {tf.__version__}, NumPy {np.__version__}",
    }


def _logical(kind: str) -> list[object]:
    """Returns the future logical devices. They cannot be listed, because that would start TensorFlow."""
    found: list[object] = []
    for device in tf.config.list_physical_devices(kind):
        found += tf.config.get_logical_device_configuration(device) or [None]
    return found


def _check_one_start(cluster: Cluster, nonce: str, timeout_seconds: float) -> None:
    """Raises ClusterError if TensorFlow's server in process 0 belongs to another job than the one that was joined."""
    if cluster.is_leader:
        cluster.put("start", nonce)
    elif cluster.get("start", timeout_seconds) != nonce:
        raise ClusterError(f"{cluster.addresses[0]} belongs to another job by now; two jobs were started on one port")


def _on_lost(lost: Lost) -> None:
    collective_runtime().fail(str(lost))
    abort_collectives(str(lost))
