"""Runs the app on a port until a signal arrives, and then lets running requests finish."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator

import uvicorn

from meshtf.errors import MeshtfError
from meshtf.serving.http.app import App
from meshtf.serving.http.bounded_protocol import bounded
from meshtf.serving.http.server_options import heard_signals

_LARGEST_HEAD = 1 << 16
_BACKLOG = 2048
_LAST_SECONDS = 5.0
"""The seconds for the last bytes of replies, when all generations have ended."""

_WAIT_SECONDS = 0.02
"""The seconds between two looks at the requests that run."""

_DRAINING = """\
{name}: no more requests are taken, and the running ones have {seconds:g} s to end; a second signal ends them at once"""
_FAILED = """\
meshtf-serve: error: the engine has failed for good: {message}. The server ends; start it again"""
_TAKEN = "--host={host} --port={port} cannot be listened on: {reason}"


class AddressError(MeshtfError):
    """An address that cannot be listened on."""


class Server:
    """A server on a port. Requests that come before `run` wait for it.

    Attributes:
      address: the address of the page.

    Args:
      app: the app that answers requests.
      bound: the socket, from `bound_socket`.
      end: ends the process at a second signal.
    """

    def __init__(self, app: App, bound: socket.socket, end: Callable[[int], object] = os._exit) -> None:
        self._app, self._socket, self._end = app, bound, end
        self._has_failed = False
        self._socket.listen(_BACKLOG)
        host, port = self._socket.getsockname()[:2]
        self.address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._is_stopping = False
        self._has_started = threading.Event()

    def run(self) -> bool:
        """Serves until a signal, `stop`, or the engine's final failure. Returns whether all requests could finish."""
        return asyncio.run(self._serve())

    def wait_until_started(self, seconds: float) -> bool:
        """Waits in another thread than `run`. Returns whether the server runs."""
        return self._has_started.wait(seconds)

    def stop(self) -> None:
        """Ends the server from another thread, as a first signal does. Does nothing if it ends already."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._stop_once)

    async def _serve(self) -> bool:
        options = self._app.options
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                self._app.asgi,
                http=bounded(options.max_connections, options.head_seconds),
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                h11_max_incomplete_event_size=_LARGEST_HEAD,
                timeout_keep_alive=max(1, int(options.head_seconds)),
                timeout_graceful_shutdown=int(options.drain_seconds + _LAST_SECONDS),
            )
        )
        with self._signals():
            self._has_started.set()
            self._app.model.engine.when_failed(self._fail)
            drained = asyncio.ensure_future(self._drained())
            await self._uvicorn.serve(sockets=[self._socket])
            self._stop_once()
            return await drained

    async def _drained(self) -> bool:
        await self._stopped.wait()
        is_whole = await asyncio.to_thread(self._app.model.engine.drain, await self._seconds_after_requests())
        await asyncio.to_thread(self._app.model.engine.close)
        self._app.submission.close()
        return is_whole and not self._has_failed

    async def _seconds_after_requests(self) -> float:
        """Waits until no request runs, for `drain_seconds` at most. Returns how many of these seconds are left.

        Until then the engine takes texts, since a request may ask for them one after the other.
        """
        end = self._loop.time() + self._app.options.drain_seconds
        while self._uvicorn.server_state.tasks and self._loop.time() < end:
            await asyncio.sleep(_WAIT_SECONDS)
        return max(0.0, end - self._loop.time())

    def _fail(self, message: str) -> None:
        """Ends the server, whose engine has failed for good. Any thread may call it."""
        self._has_failed, self._app.failure = True, message
        with contextlib.suppress(OSError):  # nobody reads it
            print(_FAILED.format(message=message), file=sys.stderr, flush=True)
        self.stop()

    def _stop(self, name: str, number: int) -> None:
        if self._is_stopping:
            print(f"{name} again: ended at once", file=sys.stderr, flush=True)
            self._end(128 + number)
            return
        with contextlib.suppress(OSError):  # nobody reads it
            seconds = self._app.options.drain_seconds
            print(_DRAINING.format(name=name, seconds=seconds), file=sys.stderr, flush=True)
        self._stop_once()

    def _stop_once(self) -> None:
        self._is_stopping = True
        self._app.is_ready = False
        self._uvicorn.should_exit = True
        self._stopped.set()

    @contextlib.contextmanager
    def _signals(self) -> Generator[None, None, None]:
        wanted: list[signal.Signals] = []
        with contextlib.suppress(ValueError, RuntimeError):  # only the main thread can handle signals
            for number in heard_signals():
                self._loop.add_signal_handler(number, self._stop, number.name, number)
                wanted.append(number)
        yield
        for number in wanted:
            self._loop.remove_signal_handler(number)


class _Uvicorn(uvicorn.Server):
    """uvicorn's server without its handling of signals, by which the signal would end the process. See `Server`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


def bound_socket(host: str, port: int) -> socket.socket:
    """Returns a socket that has its address, and does not listen yet.

    Raises:
      AddressError: if the port is taken, or there is no such address.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
        except OSError:
            found.close()
            raise
    except OSError as error:
        raise AddressError(_TAKEN.format(host=host, port=port, reason=error.strerror or error)) from None
    return found
