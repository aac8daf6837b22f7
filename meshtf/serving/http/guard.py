"""Checks who may use the app, before each request reaches it, and counts requests."""

from __future__ import annotations

import hmac
import sys
import time
import traceback
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from meshtf.serving.http.api_error import ApiError
from meshtf.serving.http.json_response import JsonResponse
from meshtf.serving.http.server_metrics import ServerMetrics
from meshtf.serving.http.server_options import ServerOptions, is_loopback_name

OPEN_PATHS = ("/", "/health", "/ready")
"""The paths that need no token. The page asks its user for one."""

_FAULT = "The server failed on this request, and its log says where; other requests continue."
_NO_TOKEN = "This server asks for a token: send the header Authorization: Bearer TOKEN."
_WRONG_TOKEN = "The token is wrong; ask whoever started the server for it."
_FOREIGN_HOST = (
    "This server is for its own machine, and the request names another host; start it with --host to serve others."
)


class Guard:
    """Checks the host's name and the token of each request, counts it, and turns a fault into a reply.

    Args:
      app: the app behind it.
      options: the token, and where the server listens.
      metrics: the counters.
      paths: the paths that are counted by name. Others are counted together.
    """

    def __init__(self, app: ASGIApp, options: ServerOptions, metrics: ServerMetrics, paths: tuple[str, ...]) -> None:
        self._app, self._options, self._metrics, self._paths = app, options, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, status = time.perf_counter(), 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        path = scope["path"] if scope["path"] in self._paths else "other"
        try:
            self._check(scope["path"], Headers(scope=scope))
            await self._app(scope, receive, counted)
        except Exception as error:
            if not isinstance(error, ApiError):
                traceback.print_exception(error, file=sys.stderr)
            if not status:
                await error_response(error)(scope, receive, counted)
        finally:
            self._metrics.requests.labels(path, str(status or "none")).inc()
            self._metrics.request_seconds.labels(path).observe(time.perf_counter() - start)

    def _check(self, path: str, headers: Mapping[str, str]) -> None:
        options = self._options
        host = headers.get("host", "")  # HTTP/1.0 has none, and a browser always sends it
        if options.is_loopback and options.token is None and host and not is_loopback_name(_host_name(host)):
            raise ApiError(_FOREIGN_HOST, 403)  # DNS rebinding: another site's name may resolve to this machine
        if options.token is None or path in OPEN_PATHS:
            return
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not given:
            raise ApiError(_NO_TOKEN, 401, code="invalid_api_key")
        if not hmac.compare_digest(given.strip().encode(), options.token.encode()):
            raise ApiError(_WRONG_TOKEN, 401, code="invalid_api_key")


def error_response(error: Exception) -> Response:
    """Returns the reply to a request that failed."""
    told = error if isinstance(error, ApiError) else ApiError(_FAULT, 500)
    return JsonResponse(told.body(), told.status, told.headers())


def _host_name(host: str) -> str:
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
