"""TensorFlow's own server and coordination service, which no public call starts with time limits of one's choice."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
from collections.abc import Iterator, Sequence

import tensorflow as tf
from tensorflow.core.protobuf import cluster_pb2, tensorflow_server_pb2
from tensorflow.python.eager import context

from meshtf.errors import ClusterError

JOB = "worker"
"""The job of which every process is a task; in the names of all devices."""

_REGISTER_SECONDS = 120
_LEADER = f"/job:{JOB}/replica:0/task:0"


def check_not_started() -> None:
    """ClusterError where TensorFlow has started: it joins other processes as it starts, or not at all."""
    running = context.context()
    if running._context_handle is not None:
        raise ClusterError(
            "initialize_cluster was called after TensorFlow had started; call it before the first TensorFlow op and "
            "the first mesh, after mtf.virtual_cpus"
        )


def start_server(addresses: Sequence[str], process_index: int, port: int, heartbeat_timeout_seconds: float) -> None:
    """Starts it, and returns when every process has. All devices of all processes are known then."""
    running = context.context()
    running.configure_collective_ops(
        use_nccl_communication=bool(tf.config.list_physical_devices("GPU")), collective_leader=_LEADER
    )
    running.configure_coordination_service(
        service_type="standalone",
        service_leader=_LEADER,
        cluster_register_timeout_in_ms=_milliseconds(_REGISTER_SECONDS),
        heartbeat_timeout_in_ms=_milliseconds(heartbeat_timeout_seconds),
        shutdown_barrier_timeout_in_ms=_milliseconds(heartbeat_timeout_seconds),
        coordinated_jobs=[context.coordination_config_pb2.CoordinatedJob(name=JOB, num_tasks=len(addresses))],
    )
    cluster = cluster_pb2.ClusterDef()
    job = cluster.job.add()
    job.name = JOB
    for index, address in enumerate(addresses):
        job.tasks[index] = address
    server = tensorflow_server_pb2.ServerDef(
        cluster=cluster,
        default_session_config=running.config,
        job_name=JOB,
        task_index=process_index,
        protocol="grpc",
        port=port,
    )
    with _own_answer_to_sigterm():
        try:
            running.enable_collective_ops(server)
            running.ensure_initialized()
        except (tf.errors.OpError, RuntimeError) as error:
            raise ClusterError(f"TensorFlow's server did not start on port {port}: {error}") from None


@contextlib.contextmanager
def _own_answer_to_sigterm() -> Iterator[None]:
    """TensorFlow's server takes SIGTERM for a notice of its own, after which the process would not end."""
    own = signal.getsignal(signal.SIGTERM)
    yield
    if own is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, own)


def abort_collectives(message: str) -> None:
    """Ends the collectives of this process that wait, and those to come."""
    context.context().abort_collective_ops(tf.errors.UNAVAILABLE, message)


class KeyValueStore:
    """Texts by key, which all processes read and write. A key is written once. ConnectionError where process 0, which
    keeps them, is not reached."""

    def put(self, key: str, value: str) -> None:
        try:
            context.context().set_config_key_value(key, value)
        except tf.errors.OpError as error:
            raise ConnectionError(error.message) from None

    def get(self, key: str, timeout_seconds: float) -> str | None:
        """The value, waited for; None where it does not come in time."""
        try:
            value = context.context().get_config_key_value(key, _milliseconds(timeout_seconds))
        except tf.errors.DeadlineExceededError:
            return None
        except tf.errors.OpError as error:
            raise ConnectionError(error.message) from None
        return value.decode() if isinstance(value, bytes) else str(value)


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000)
