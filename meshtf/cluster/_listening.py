"""The port of this process, held from the check that it is free until TensorFlow's server takes it."""

from __future__ import annotations

import errno
import socket

from meshtf.cluster.process_addresses import ProcessAddresses, is_loopback, resolved
from meshtf.errors import ClusterError


def listening_socket(processes: ProcessAddresses, listen_port: int | None = None) -> socket.socket:
    """On this process's own address, or another port; on loopback only, where all processes are there.

    Raises:
      ClusterError: the port is in use, or the address is another machine's, or unknown.
    """
    assert processes.own is not None
    host, port = resolved(processes.own, processes.source)
    port = listen_port or port
    everybody = [resolved(a, processes.source)[0] for a in processes.addresses or (processes.own,)]
    # Many machines know their own name as a loopback address, where no other finds them.
    is_elsewhere = not all(map(is_loopback, everybody)) and (is_loopback(host) or listen_port is not None)
    try:
        return listen(("::" if ":" in host else "0.0.0.0") if is_elsewhere else host, port)
    except OSError as error:
        name = processes.name(processes.process_index)
        if error.errno == errno.EADDRINUSE:
            what = f"port {port} is in use on this machine: by another job, or by a process of an earlier one"
        elif error.errno == errno.EADDRNOTAVAIL:
            what = f"{host} is no address of this machine; is this process where its address says?"
        else:
            what = f"it cannot listen there: {error.strerror}"
        raise ClusterError(f"{processes.source}: {name}: {what}") from None


def listen(host: str, port: int) -> socket.socket:
    """At a numeric address. A zone of IPv6 is a part of its own in what a socket binds to."""
    family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[0]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of an earlier run may linger
        listening.bind(place)
        listening.listen(1024)
    except OSError:
        listening.close()
        raise
    return listening
