"""Counts the bytes that a process has sent to other hosts, from the kernel's counters of its connections."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterator

_SENT = struct.Struct("=200xQQ")
"""The counters in `tcp_info` of Linux 4.19 and later: `tcpi_bytes_sent`, and its part `tcpi_bytes_retrans`."""


def payload_sent() -> int:
    """The bytes that this process has written to its open connections with other hosts.

    Headers, acknowledgements and retransmissions do not count. There are more retransmissions on a busy machine.
    """
    total = 0
    for connection in _connections():
        with connection:
            try:
                own, other = connection.getsockname()[0], connection.getpeername()[0]
            except OSError:  # it listens, or the peer has closed it
                continue
            if own != other:
                info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SENT.size)
                sent, again = _SENT.unpack(info)
                total += sent - again
    return total


def _connections() -> Iterator[socket.socket]:
    """The TCP connections among the open files, each with a duplicated descriptor."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # it has been closed meanwhile
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            found = socket.socket(fileno=os.dup(int(name)))
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                yield found
            else:
                found.close()
