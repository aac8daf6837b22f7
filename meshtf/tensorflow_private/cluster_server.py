"""TensorFlow's server, the key-value store of its coordination service, and aborting collectives that wait.

Public alternatives that are not sufficient:

- `Context.configure_coordination_service`, `.configure_collective_ops`, `.enable_collective_ops`,
  `.ensure_initialized`: `tf.experimental.dtensor.initialize_accelerator_system("CPU")` calls these, with time limits
  of its own. `tf.distribute.Server` serves sessions of TensorFlow 1, without collectives of eager programs.
- `Context.config`: the server needs all settings of this process. `tf.config` shows only some, one by one.
- `Context.set_config_key_value`, `.get_config_key_value`, `.delete_config_key_value`: no public name accesses the
  key-value store of the coordination service.
- `Context.abort_collective_ops`: no public name aborts a collective that waits. The time limits of the operations
  themselves keep two threads asleep for each collective, even long after it has completed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from meshtf.tensorflow_private.eager_context import running


@dataclasses.dataclass(frozen=True)
class TimeLimits:
    """The time limits of the coordination service, in milliseconds.

    Attributes:
      register: for all processes to start.
      heartbeat: for a sign of life of each process.
      shutdown: for all processes to end.
    """

    register: int
    heartbeat: int
    shutdown: int


def configure_service(job: str, num_tasks: int, leader: str, limits: TimeLimits) -> None:
    """Configures the processes as the tasks of a job, and sets the leader. Call it before TensorFlow starts.

    Args:
      job: the job's name.
      num_tasks: the number of processes.
      leader: the name of the first process, such as /job:worker/replica:0/task:0.
      limits: the time limits of the coordination service.
    """
    own: Any = tf.compat.v1.ConfigProto()
    jobs = own.experimental.coordination_config.coordinated_job_list
    jobs.add(name=job, num_tasks=num_tasks)
    running().configure_collective_ops(
        use_nccl_communication=bool(tf.config.list_physical_devices("GPU")), collective_leader=leader
    )
    running().configure_coordination_service(
        service_type="standalone",
        service_leader=leader,
        cluster_register_timeout_in_ms=limits.register,
        heartbeat_timeout_in_ms=limits.heartbeat,
        shutdown_barrier_timeout_in_ms=limits.shutdown,
        coordinated_jobs=list(jobs),
    )


def announce_server(job: str, addresses: Sequence[str], task: int, port: int) -> None:
    """Sets the server with which TensorFlow starts: the server of one task of a job."""
    cluster: Any = tf.train.ClusterDef()
    tasks = cluster.job.add(name=job).tasks
    for index, address in enumerate(addresses):
        tasks[index] = address
    server: Any = tf.train.ServerDef(
        cluster=cluster,
        default_session_config=running().config,
        job_name=job,
        task_index=task,
        protocol="grpc",
        port=port,
    )
    running().enable_collective_ops(server)


def start() -> None:
    """Starts TensorFlow with the announced server. Returns when every process has started."""
    running().ensure_initialized()


def abort_collectives(code: int, message: str) -> None:
    """Aborts all waiting and future collectives of this process, with an error of this code."""
    running().abort_collective_ops(code, message)


def put_text(key: str, text: str) -> None:
    """Stores a text under a key, at process 0. Raises `AlreadyExistsError` if the key has a text."""
    running().set_config_key_value(key, text)


def delete_text(key: str) -> None:
    """Deletes the text of a key."""
    running().delete_config_key_value(key)


def get_text(key: str, timeout_milliseconds: int) -> str:
    """Waits for the text of a key, and returns it. Raises `DeadlineExceededError` if none is stored in time."""
    value = running().get_config_key_value(key, timeout_milliseconds)
    return value.decode() if isinstance(value, bytes) else str(value)
