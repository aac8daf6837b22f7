"""Finds free ports on the loopback interface."""

from __future__ import annotations

import contextlib
import socket


def free_ports(number: int) -> list[int]:
    """Returns this many different free ports. If another program takes one first, the process that needs it fails."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
