"""Starts TensorFlow's own server and coordination service. No public call can set their time limits."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from meshtf.cluster._start_limit import killed_after
from meshtf.errors import ClusterError, ProcessLostError
from meshtf.mesh_impl.host.freed_memory import pool_of_processors
from meshtf.tensorflow_private import cluster_server
from meshtf.tensorflow_private.eager_context import has_started

JOB = "worker"
"""The job whose tasks are the processes. It is part of the names of all devices."""

_REGISTER_SECONDS = 120
_LONGEST_START_SECONDS = _REGISTER_SECONDS + 10
"""The time limit of the start. If a process died after all had met, process 0 would wait for ever, and the others
for `_REGISTER_SECONDS`."""

_TENSORFLOWS_PATIENCE = 6
"""TensorFlow waits this many times as long as `PeerWatch`. It does not detect that this process itself was stopped, so
after a short halt of the machine it would give up all others."""

_WAITS_PER_TIMEOUT = 8

_NEVER_STARTS = """\
process {own} is killed: TensorFlow's server has not started, and lets nothing else run. Another process has probably \
died since all processes met. Start all processes again; training resumes from its last checkpoint"""
_LEADER = f"/job:{JOB}/replica:0/task:0"


def check_not_started() -> None:
    """Raises ClusterError if TensorFlow has started. It can join other processes only while it starts."""
    if has_started():
        raise ClusterError(
            "initialize_cluster was called after TensorFlow had started; call it before the first TensorFlow op and "
            "the first mesh, after mtf.virtual_cpus"
        )


def start_server(addresses: Sequence[str], process_index: int, port: int, heartbeat_timeout_seconds: float) -> None:
    """Starts the server, and returns when every process has started its own. All devices are known then."""
    limits = cluster_server.TimeLimits(
        register=_milliseconds(_REGISTER_SECONDS),
        heartbeat=_milliseconds(_TENSORFLOWS_PATIENCE * heartbeat_timeout_seconds),
        shutdown=_milliseconds(heartbeat_timeout_seconds),
    )
    cluster_server.configure_service(JOB, len(addresses), _LEADER, limits)
    with _own_answer_to_sigterm(), killed_after(_LONGEST_START_SECONDS, _NEVER_STARTS.format(own=process_index)):
        try:
            cluster_server.announce_server(JOB, addresses, process_index, port)
            with pool_of_processors():
                cluster_server.start()
        except (tf.errors.DeadlineExceededError, tf.errors.UnavailableError):
            raise ProcessLostError(
                f"process 0 ({addresses[0]}) has not answered since all processes met: it has died, or is stopped"
            ) from None
        except (tf.errors.OpError, RuntimeError) as error:
            raise ClusterError(f"TensorFlow's server did not start on port {port}: {error}") from None


@contextlib.contextmanager
def _own_answer_to_sigterm() -> Iterator[None]:
    """Keeps this process's SIGTERM handler. TensorFlow's server would replace it, and the process would not end."""
    own = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if own is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, own)


def abort_collectives(message: str) -> None:
    """Aborts the waiting collectives of this process, and all later ones."""
    cluster_server.abort_collectives(tf.errors.UNAVAILABLE, message)


@dataclasses.dataclass(frozen=True)
class KeyValueStore:
    """The `TextStore` of TensorFlow's coordination service.

    Attributes:
      timeout_seconds: the time after which process 0, which keeps the texts, counts as unreachable if it does not
        answer.
    """

    timeout_seconds: float

    def put(self, key: str, value: str) -> None:
        self._answered(lambda: cluster_server.put_text(key, value))

    def replace(self, key: str, value: str) -> None:
        self._answered(lambda: cluster_server.delete_text(key))
        self.put(key, value)

    def get(self, key: str, timeout_seconds: float) -> str | None:
        try:
            return cluster_server.get_text(key, _milliseconds(timeout_seconds))
        except tf.errors.DeadlineExceededError:
            return None
        except tf.errors.OpError as error:
            raise ConnectionError(error.message) from None

    def _answered(self, call: Callable[[], None]) -> None:
        """Makes a call that has no time limit in TensorFlow. If process 0 is stopped, the call's thread stays alive."""
        ended: queue.SimpleQueue[tf.errors.OpError | None] = queue.SimpleQueue()

        def run() -> None:
            try:
                call()
            except tf.errors.OpError as error:
                ended.put(error)
            else:
                ended.put(None)

        threading.Thread(target=run, name="meshtf_key_value_store", daemon=True).start()
        for _ in range(_WAITS_PER_TIMEOUT):  # several waits, so that time in which this process is stopped counts less
            with contextlib.suppress(queue.Empty):
                error = ended.get(timeout=self.timeout_seconds / _WAITS_PER_TIMEOUT)
                if error is not None:
                    raise ConnectionError(error.message)
                return
        raise ConnectionError(f"it has not answered for {self.timeout_seconds:g} seconds")


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000)
