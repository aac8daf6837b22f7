"""Serves the page to this machine only, with controls that plan other settings.

Other users of the machine, and pages of other sites in the same browser, must not be able to send requests. So the
address contains a secret, requests must name this server as their host, and requests from other sites are refused. A
request can set only the fields of `Settings`. Their texts are parsed, but never evaluated.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from meshtf.plan_view.page_data import layout_data
from meshtf.plan_view.planned_layout import PlannedLayout, Settings
from meshtf_programs.addresses import Address
from meshtf_programs.strict_json import json_text

HOST = "127.0.0.1"
_MOST_BYTES, _MOST_CHARACTERS, _MOST_PLANS = 1 << 16, 4000, 32
_MOST_DIGITS = 9
_SECONDS_FOR_A_REQUEST = 60
_FAULT = "this is a fault of meshtf, or of what it builds on; where meshtf-plan runs, it says where it was raised"


class SettingsError(Exception):
    """A request for settings that do not exist."""


class PlanServer:
    """A server at the loopback address of this machine.

    Args:
      port: the port to listen on. 0 means any free port.
      plan: plans settings. It may be slow, and its calls never overlap. It reports progress by calling its second
        argument with a text, which the page shows.

    Raises:
      OSError: if the port is taken, or this user may not take it.
    """

    def __init__(self, port: int, plan: Callable[[Settings, Callable[[object], None]], PlannedLayout]) -> None:
        self._plan, self._lock = plan, threading.Lock()
        self._news = ""
        self._plans: dict[Settings, dict[str, Any]] = {}
        self._secret = secrets.token_urlsafe(16)
        self._server = _Listener((HOST, port), _Handler)
        self._server.owner = self
        self.page = ""

    @property
    def address(self) -> str:
        """The address of the page, with its secret."""
        return f"http://{Address(HOST, self.port)}{self.path}"

    @property
    def path(self) -> str:
        return f"/{self._secret}/"

    @property
    def plan_path(self) -> str:
        """The path to which the page sends settings."""
        return f"{self.path}plan"

    @property
    def progress_path(self) -> str:
        """The path from which the page reads the progress of a plan."""
        return f"{self.plan_path}/progress"

    @property
    def news(self) -> str:
        """The progress of the present plan, or an empty text."""
        return self._news

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def hosts(self) -> frozenset[str]:
        """The hosts by which requests may name this server. Other host names that resolve to it are refused."""
        return frozenset(str(Address(host, self.port)) for host in (HOST, "localhost"))

    def serve(self) -> None:
        """Serves until `stop`, or until an exception ends it."""
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        """Ends `serve`. Call it from another thread."""
        self._server.shutdown()

    def close(self) -> None:
        self._server.server_close()

    def planned(self, settings: Settings) -> dict[str, Any]:
        """Returns the plan's data. The data of recent settings are cached."""
        with self._lock:
            if settings not in self._plans:
                if len(self._plans) >= _MOST_PLANS:
                    del self._plans[next(iter(self._plans))]
                try:
                    self._plans[settings] = layout_data(self._plan(settings, self._tell))
                finally:
                    self._news = ""
            return self._plans[settings]

    def _tell(self, said: object) -> None:
        self._news = str(said)


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    owner: PlanServer

    def handle_error(self, request: object, client_address: object) -> None:
        """Prints an error, unless the browser closed the connection early, which is harmless."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            traceback.print_exc()


class _Handler(BaseHTTPRequestHandler):
    server_version, sys_version = "meshtf-plan", ""
    timeout = _SECONDS_FOR_A_REQUEST

    def do_GET(self) -> None:
        owner = self._owner
        if self._is_refused():
            return
        if self.path == owner.progress_path:
            return self._send_data(HTTPStatus.OK, {"progress": owner.news})
        if self.path != owner.path:
            return self._send(
                HTTPStatus.NOT_FOUND, "text/plain", "There is no such page; the address was printed whole."
            )
        self._send(HTTPStatus.OK, "text/html", owner.page)

    def do_POST(self) -> None:
        owner, content = self._owner, self._content()
        if self._is_refused():
            return
        if self.path != owner.plan_path:
            return self._send_data(HTTPStatus.NOT_FOUND, {"error": "there is no such address"})
        try:
            data = owner.planned(settings_of(self._parsed(content)))
        except SettingsError as error:
            return self._send_data(HTTPStatus.BAD_REQUEST, {"error": str(error)})
        except Exception:
            traceback.print_exc()
            return self._send_data(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": _FAULT})
        self._send_data(HTTPStatus.UNPROCESSABLE_ENTITY if "error" in data else HTTPStatus.OK, data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class calls it so
        """Logs nothing, since requests are private."""

    @property
    def _owner(self) -> PlanServer:
        assert isinstance(self.server, _Listener)
        return self.server.owner

    def _is_refused(self) -> bool:
        """Refuses a request from another site, also through a host name that resolves to this machine.

        Returns whether it was refused.
        """
        hosts, origin = self._owner.hosts, self.headers.get("Origin")
        if self.headers.get("Host") not in hosts:
            self._send(
                HTTPStatus.MISDIRECTED_REQUEST, "text/plain", "This server answers to the address that it printed."
            )
            return True
        if origin is not None and origin.removeprefix("http://") not in hosts:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", "Another site's page may not ask.")
            return True
        return False

    def _content(self) -> bytes | None:
        """Returns the body of a request, or None if it is too long or its length is missing.

        It must be read before the answer is sent.
        """
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()) or len(length) > _MOST_DIGITS:
            return None
        if int(length) > _MOST_BYTES:
            return None
        return self.rfile.read(int(length))

    def _parsed(self, content: bytes | None) -> Any:
        if self.headers.get_content_type() != "application/json":
            raise SettingsError("settings come as application/json")
        if content is None:
            raise SettingsError(f"settings have a length, of at most {_MOST_BYTES} bytes")
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise SettingsError("settings are JSON, and this is not") from None

    def _send_data(self, status: HTTPStatus, data: Mapping[str, Any]) -> None:
        self._send(status, "application/json", json_text(data))

    def _send(self, status: HTTPStatus, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        self.wfile.write(content)


def settings_of(data: Any) -> Settings:
    """Returns the settings that a page sent.

    Raises:
      SettingsError: if a name is unknown or missing, or a value of the wrong kind.
    """
    names = [field.name for field in dataclasses.fields(Settings)]
    if not isinstance(data, dict) or set(data) != set(names):
        raise SettingsError(f"the settings are {', '.join(names)}: all of them, and nothing else")
    for name in names:
        value = data[name]
        if name == "batch_size":
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 1 << 31:
                raise SettingsError(f"batch_size is an integer, 1 or more, and not {value!r}"[:_MOST_CHARACTERS])
        elif not isinstance(value, str) or len(value) > _MOST_CHARACTERS:
            raise SettingsError(f"{name} is a text of at most {_MOST_CHARACTERS} characters")
    return Settings(**data)
