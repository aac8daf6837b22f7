"""Sends the inputs of each program from process 0, which serves, to the other processes of a cluster.

All processes run the same programs in the same order, since a program's collectives need all of them. Only process 0
receives requests. Before it runs a program, it sends the program's name and inputs, which are a few kilobytes.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import math
import multiprocessing.connection
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection

import numpy as np

from meshtf.cluster.cluster import Cluster
from meshtf.errors import ClusterError, MeshtfError, ProcessLostError
from meshtf_programs.strict_json import json_text

_ADDRESS = "serving/address"
_SECONDS, _SHORTEST_WAIT = 300.0, 1.0
_SEND_SECONDS = 60.0
"""How long a process may read nothing. A step takes much less, and a link can buffer messages of some kilobytes."""
_KEY_BYTES, _INDEX_BYTES = 32, 4

_LATE = "{missing} did not connect to the steps of process 0 within {seconds:g} seconds"
_LOST = "process {index} ({address}) is gone; start all processes again"
_HANGS = """\
process {index} ({address}) has read nothing for {seconds:g} seconds: it hangs; end it, and start all processes again"""


class StepSender:
    """The links from process 0 to the others, which connect with a key from the cluster's store.

    The constructor waits for all of them.

    Args:
      cluster: the processes.
      seconds: the time that the others have to connect.
      send_seconds: the time that each of them has to read the inputs of a step.

    Raises:
      ClusterError: if some do not come in time.
      ProcessLostError: if one is lost meanwhile.
    """

    def __init__(self, cluster: Cluster, seconds: float = _SECONDS, send_seconds: float = _SEND_SECONDS) -> None:
        self._cluster, self._is_closed, self._send_seconds = cluster, False, send_seconds
        self._hanging = set[int]()
        key = secrets.token_bytes(_KEY_BYTES)
        host = cluster.addresses[0].rpartition(":")[0].strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._links: dict[int, Connection] = {}
        with socket.create_server((host, 0), family=family) as listener:
            listener.settimeout(_SHORTEST_WAIT)
            cluster.put(_ADDRESS, json_text([host, listener.getsockname()[1], key.hex()]))
            try:
                self._accept(listener, key, seconds)
            except MeshtfError:
                for link in self._links.values():
                    link.close()
                raise

    def _accept(self, listener: socket.socket, key: bytes, seconds: float) -> None:
        end = time.monotonic() + seconds
        wanted = set(range(1, self._cluster.num_processes))
        while missing := sorted(wanted - set(self._links)):
            self._cluster.check_complete()
            if time.monotonic() > end:
                named = ", ".join(f"process {i} ({self._cluster.addresses[i]})" for i in missing)
                raise ClusterError(_LATE.format(missing=named, seconds=seconds))
            with contextlib.suppress(OSError):  # no process has connected, or it has disconnected
                connected = listener.accept()[0]
                index = _index_of(connected, key)
                if index is not None and index in missing:
                    self._links[index] = _link(connected, self._send_seconds)
                else:
                    connected.close()
        self._links = dict(sorted(self._links.items()))  # inputs are sent in this order, whoever came first

    def send(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Sends a program's name, and its inputs in the order of the mapping.

        Raises:
          ProcessLostError: if a process is gone, or reads nothing. Nothing can be sent afterwards.
        """
        message = packed(name, arrays)
        for index, link in self._links.items():
            try:
                link.send_bytes(message)
            except BlockingIOError:
                self._hanging.add(index)
                raise ProcessLostError(self._named(_HANGS, index)) from None
            except OSError:
                raise ProcessLostError(self._named(_LOST, index)) from None

    def watch(self, tell: Callable[[str], None]) -> None:
        """Calls `tell` with a message, from another thread, when a process is gone."""

        def wait() -> None:
            # The others send nothing, so a link that can be read has ended.
            with contextlib.suppress(OSError):
                ended = multiprocessing.connection.wait(list(self._links.values()))
                if not self._is_closed:
                    index = next(index for index, link in self._links.items() if link in ended)
                    tell(self._named(_LOST, index))

        threading.Thread(target=wait, name="meshtf-links", daemon=True).start()

    def _named(self, message: str, index: int) -> str:
        return message.format(index=index, address=self._cluster.addresses[index], seconds=self._send_seconds)

    def close(self) -> None:
        """Tells the others that no more programs run, except those that hang."""
        self._is_closed = True
        for index, link in self._links.items():
            if index not in self._hanging:
                with contextlib.suppress(OSError):
                    link.send_bytes(b"")


class StepReceiver:
    """The link from another process to process 0. Iterating yields the names of programs and their inputs.

    Args:
      cluster: the processes.
      seconds: the time that process 0 has to start listening.

    Raises:
      ClusterError: if it does not listen in time.
      ProcessLostError: if process 0 is lost meanwhile. Iterating raises it if process 0 ends without `close`.
    """

    def __init__(self, cluster: Cluster, seconds: float = _SECONDS) -> None:
        self._cluster = cluster
        host, port, key = json.loads(cluster.get(_ADDRESS, seconds))
        try:
            connected = socket.create_connection((host, port), seconds)
            connected.sendall(bytes.fromhex(key) + cluster.process_index.to_bytes(_INDEX_BYTES, "big"))
            self._link = _link(connected)
        except OSError as error:
            raise ClusterError(f"process 0 does not accept connections at {host}:{port}: {error}") from None

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        while True:
            try:
                message = self._link.recv_bytes()
            except (EOFError, OSError):
                raise ProcessLostError(_LOST.format(index=0, address=self._cluster.addresses[0])) from None
            if not message:
                return
            name, _, values = message.partition(b"\0")
            yield name.decode(), values

    def close(self) -> None:
        """Ends the link."""
        self._link.close()


def _index_of(connected: socket.socket, key: bytes) -> int | None:
    """Returns the index of the process that has connected, or None if it does not send the key in time."""
    told, end, wanted = b"", time.monotonic() + _SHORTEST_WAIT, len(key) + _INDEX_BYTES
    connected.settimeout(_SHORTEST_WAIT)
    with contextlib.suppress(OSError):
        while len(told) < wanted and time.monotonic() < end and (more := connected.recv(wanted - len(told))):
            told += more
    is_known = len(told) == wanted and hmac.compare_digest(told[: len(key)], key)
    return int.from_bytes(told[len(key) :], "big") if is_known else None


def _link(connected: socket.socket, send_seconds: float | None = None) -> Connection:
    """A link over a connection. Sending raises a BlockingIOError after `send_seconds` without progress."""
    connected.settimeout(None)
    if send_seconds is not None:
        whole, part = divmod(send_seconds, 1.0)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(whole), int(part * 1e6)))
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(connected.detach())


def packed(name: str, arrays: Mapping[str, np.ndarray]) -> bytes:
    """Returns a program's name and inputs as a message."""
    return b"\0".join([name.encode(), b"".join(array.tobytes() for array in arrays.values())])


def unpacked(values: bytes, like: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the inputs in a message. `like`: arrays of their names, dtypes and shapes, in the same order.

    Raises:
      ClusterError: if the message has another size.
    """
    wanted = sum(array.nbytes for array in like.values())
    if wanted != len(values):
        raise ClusterError(
            f"process 0 sent {len(values)} bytes of inputs, and the program here has {wanted}; give all processes the "
            f"same flags"
        )
    found, place = dict[str, np.ndarray](), 0
    for name, array in like.items():
        count = math.prod(array.shape)
        found[name] = np.frombuffer(values, array.dtype, count, place).reshape(array.shape)
        place += array.nbytes
    return found
