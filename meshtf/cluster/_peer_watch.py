"""Detects lost processes: each process regularly sends a request to TensorFlow's server in every other process.

The requests go to the addresses that collectives use. A process that is dead, stopped, or cut off from this one does
not answer. With a timeout of 10 s, each process sends a request every second. A process counts as lost when it has not
answered for 10 s, or when nothing listened at its address twice in a row.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import grpc

_METHOD = "/tensorflow.WorkerService/GetStatus"
_LOOKS_PER_TIMEOUT = 8
_LONGEST_PERIOD = 1.0
_LONGEST_HANDSHAKE_MS = 5000
_REFUSALS = 2
"""A process counts as dead when nothing has listened at its address this many times in a row."""


@dataclasses.dataclass(frozen=True)
class Lost:
    """The lost processes, by index, with a sentence on each."""

    processes: Mapping[int, str]

    def __str__(self) -> str:
        return "; ".join(self.processes.values())


@dataclasses.dataclass
class _Peer:
    """The state of the requests to another process."""

    name: str
    ask: Callable[[], Any]
    answered: float
    refusals: int = 0
    asked: Any = None
    """A call of gRPC. It is both a grpc.Call and a grpc.Future, and gRPC has no type for that."""


class PeerWatch:
    """A thread that watches the other processes. It calls `on_lost` once, with the processes that are lost first."""

    def __init__(
        self,
        addresses: Mapping[int, str],
        timeout_seconds: float,
        on_lost: Callable[[Lost], None],
        hear: Callable[[float], Lost | None],
    ) -> None:
        """Opens channels to the other processes. `start` begins to send requests.

        Args:
          addresses: the addresses of the other processes, by index.
          timeout_seconds: the time after which a process that does not answer counts as lost.
          on_lost: a function that is called once, with the lost processes.
          hear: returns the process that has announced its failure. Its argument is how long it may wait, in seconds.
        """
        self._hear = hear
        self._timeout = timeout_seconds
        self._period = min(_LONGEST_PERIOD, timeout_seconds / _LOOKS_PER_TIMEOUT)
        self._on_lost = on_lost
        self._stopped = threading.Event()
        self._found = threading.Event()
        self.lost: Lost | None = None
        self._channels = {i: _channel(address) for i, address in addresses.items()}
        now = time.monotonic()
        self._peers = {
            i: _Peer(f"process {i} ({addresses[i]})", self._asking(channel), now)
            for i, channel in self._channels.items()
        }
        self._thread = threading.Thread(target=self._run, name="meshtf_peer_watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops watching."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=self._timeout)
        for channel in self._channels.values():
            channel.close()

    def wait_for_loss(self, timeout_seconds: float) -> Lost | None:
        """Returns the lost processes, or None if none is lost within the time."""
        self._found.wait(timeout_seconds)
        return self.lost

    @property
    def period(self) -> float:
        """The seconds between two requests."""
        return self._period

    def _asking(self, channel: grpc.Channel) -> Callable[[], grpc.Future]:
        call = channel.unary_unary(_METHOD, request_serializer=bytes, response_deserializer=len)
        return lambda: call.future(b"", timeout=self._timeout)

    def _run(self) -> None:
        looked = time.monotonic()
        while not self._stopped.wait(self._period):
            now = time.monotonic()
            # If this process itself was stopped for a time, it could not receive answers during that time.
            paused = max(now - looked - 2 * self._period, 0.0)
            looked = now
            gone = {i: why for i, peer in self._peers.items() if (why := self._look_at(peer, now, paused))}
            # If a process announced its failure before it ended, the reason of its loss is known.
            lost = self._hear(self._period / 2) or (Lost(gone) if gone else None)
            if lost is not None:
                self.lost = lost
                self._on_lost(lost)
                self._found.set()
                return

    def _look_at(self, peer: _Peer, now: float, paused: float) -> str | None:
        """Returns why a process counts as lost, or None."""
        peer.answered += paused
        if peer.asked is not None and peer.asked.done():
            peer.refusals = peer.refusals + 1 if _is_refused(peer.asked) else 0
            peer.answered = now if peer.asked.code() == grpc.StatusCode.OK else peer.answered
            peer.asked = None
        if peer.refusals >= _REFUSALS:
            return f"{peer.name} has died or ended: nothing listens at its address any more"
        if now - peer.answered > self._timeout:
            return (
                f"{peer.name} has not answered for {now - peer.answered:.0f} seconds: it is stopped, or cut off "
                "from the network"
            )
        peer.asked = peer.asked or peer.ask()
        return None


def _is_refused(asked: Any) -> bool:
    """Tells whether nothing listens at the address. The status UNAVAILABLE alone does not say so: a process that is
    stopped, or slow in its handshake, gets it as well.
    """
    return asked.code() == grpc.StatusCode.UNAVAILABLE and "refused" in (asked.details() or "").lower()


def _channel(address: str) -> grpc.Channel:
    return grpc.insecure_channel(
        address,
        options=[
            ("grpc.enable_http_proxy", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", _LONGEST_HANDSHAKE_MS),  # also limits how long one attempt may take
            ("grpc.max_reconnect_backoff_ms", 500),
            ("grpc.use_local_subchannel_pool", 1),
        ],
    )
