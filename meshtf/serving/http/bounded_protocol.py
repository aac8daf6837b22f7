"""HTTP/1.1 with bounds that keep idle and slow connections from taking all places."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_FULL = b"""\
HTTP/1.1 503 Service Unavailable\r
Content-Type: application/json\r
Retry-After: 1\r
Connection: close\r
Content-Length: %d\r
\r
%s"""
_WRONG = b"""\
HTTP/1.1 400 Bad Request\r
Content-Type: application/json\r
Connection: close\r
Content-Length: %d\r
\r
%s"""
_TOO_MANY = b'{"error":{"message":"The server has as many connections as it may; come again later.",\
"type":"overloaded_error","param":null,"code":"overloaded"}}'
_NO_HTTP = b'{"error":{"message":"The bytes that were sent are no request of HTTP/1.1, or its head is too large.",\
"type":"invalid_request_error","param":null,"code":null}}'


class BoundedProtocol(H11Protocol):
    """A connection. `bounded` makes a subclass of it for each server."""

    max_connections = 1024
    head_seconds = 30.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer: asyncio.TimerHandle | None = None
        self._seen: Any = None
        if len(self.connections) > self.max_connections:
            transport.write(_FULL % (len(_TOO_MANY), _TOO_MANY))
            transport.close()
            return
        self._timer = self.loop.call_later(self.head_seconds, self._end_if_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Replies to bytes that are no request, and closes. If another reply has begun, it only closes."""
        cycle: Any = self.cycle
        if cycle is None or not cycle.response_started or cycle.response_complete:
            self.transport.write(_WRONG % (len(_NO_HTTP), _NO_HTTP))
        self.transport.close()

    def _end_if_idle(self) -> None:
        """Closes the connection if it had no request during the last interval."""
        # The cycle is None before the first request, although uvicorn's annotation does not say so.
        cycle: Any = self.cycle
        if cycle is None or (cycle.response_complete and cycle is self._seen):
            self.transport.close()
            return
        self._seen = cycle if cycle.response_complete else None
        self._timer = self.loop.call_later(self.head_seconds, self._end_if_idle)


def bounded(max_connections: int, head_seconds: float) -> type[BoundedProtocol]:
    """Returns the class of connections with these bounds."""
    bounds = {"max_connections": max_connections, "head_seconds": head_seconds}
    return type("BoundedProtocol", (BoundedProtocol,), bounds)
