"""The bounds of a server, and who may use it."""

from __future__ import annotations

import dataclasses
import ipaddress
import signal

from meshtf.errors import UsageError
from meshtf.field_checks import check, check_above_zero, check_kinds, check_not_negative, check_sizes

LOOPBACK = "127.0.0.1"
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that end a server."""


def heard_signals() -> list[signal.Signals]:
    """Returns the signals that end a server, without ignored ones: `nohup` starts programs that ignore SIGHUP."""
    return [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]


@dataclasses.dataclass(frozen=True)
class ServerOptions:
    """The options of a server.

    Attributes:
      host: the address to listen on.
      port: the port to listen on. 0 stands for any free one.
      token: the token that requests must bring, or None.
      max_body_bytes: the most bytes of a request's body.
      max_connections: the most connections at once.
      request_seconds: the seconds after which a generation ends early, with the text so far.
      head_seconds: the seconds in which a request's head and body must come, and for which a connection may be idle.
      drain_seconds: the seconds that generations have to end when the server is asked to stop.
    """

    host: str = LOOPBACK
    port: int = 8000
    token: str | None = None
    max_body_bytes: int = 1 << 20
    max_connections: int = 1024
    request_seconds: float = 600.0
    head_seconds: float = 30.0
    drain_seconds: float = 30.0

    def __post_init__(self) -> None:
        check_kinds(self, UsageError)
        check(self, "port", 0 <= self.port < 2**16, "from 0 to 65535", error=UsageError)
        check_sizes(self, "max_body_bytes", "max_connections", error=UsageError)
        check_above_zero(self, "request_seconds", "head_seconds", error=UsageError)
        check_not_negative(self, "drain_seconds", error=UsageError)

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the server."""
        return is_loopback_name(self.host)


def is_loopback_name(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
