"""The port of this process. It is reserved from the check that it is free until TensorFlow's server uses it."""

from __future__ import annotations

import errno
import socket

from meshtf.cluster.process_addresses import ProcessAddresses, is_loopback, resolved
from meshtf.errors import ClusterError


def listening_socket(processes: ProcessAddresses, listen_port: int | None = None) -> socket.socket:
    """Returns a socket that listens at this process's own address, or at another port.

    If all processes are on loopback, it listens on loopback only.

    Raises:
      ClusterError: if the port is in use, or if the address is unknown or belongs to another machine.
    """
    assert processes.own is not None
    host, port = resolved(processes.own, processes.source)
    port = listen_port or port
    everybody = [resolved(a, processes.source)[0] for a in processes.addresses or (processes.own,)]
    # On many machines their own name resolves to a loopback address, which other machines cannot reach.
    is_elsewhere = not all(map(is_loopback, everybody)) and (is_loopback(host) or listen_port is not None)
    try:
        return listen(("::" if ":" in host else "0.0.0.0") if is_elsewhere else host, port)
    except OSError as error:
        name = processes.name(processes.process_index)
        if error.errno == errno.EADDRINUSE:
            what = f"port {port} is in use on this machine: by another job, or by a process of an earlier one"
        elif error.errno == errno.EADDRNOTAVAIL:
            what = f"{host} is not an address of this machine; was this process started on the machine of its address?"
        else:
            what = f"it cannot listen there: {error.strerror}"
        raise ClusterError(f"{processes.source}: {name}: {what}") from None


def listen(host: str, port: int) -> socket.socket:
    """Returns a socket that listens at a numeric address. A socket takes the zone of an IPv6 address as a separate
    value.
    """
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
