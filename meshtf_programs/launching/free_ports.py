"""Ports of the loopback that nobody listens on."""

from __future__ import annotations

import contextlib
import socket


def free_ports(number: int) -> list[int]:
    """So many, all different. Another program can take one before it is used; its process then says so."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
