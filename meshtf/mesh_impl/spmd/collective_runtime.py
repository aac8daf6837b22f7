"""The per-process state for TensorFlow's collectives, in one place: the only global state of meshtf.

- A group key identifies one list of devices, and an instance key one collective, until the process ends.
- Collectives must run in the same order on all devices. Every collective uses an ordering token of its device, so
  TensorFlow's automatic control dependencies keep that order. Programs share the tokens, so two programs in one
  `tf.function` are also ordered. Collectives between processes are slow. They have a separate token, so that others
  need not wait for them.
- A core increments a counter when it enters and when it leaves a collective. The watchdog reads these counters: an odd
  count means that the core is inside.
- A process in which a collective failed can run no further collectives.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from meshtf.errors import CollectiveError, UsageError
from meshtf.mesh_impl.home_device import home_device
from meshtf.mesh_impl.spmd._failure_text import is_collective_failure, short_text
from meshtf.mesh_impl.spmd._stall_detector import Stall
from meshtf.mesh_impl.spmd._watchdog import Watchdog

if TYPE_CHECKING:
    from meshtf.cluster.cluster import Cluster

_FIRST_KEY = 1 << 20  # avoids the keys of tf.distribute and DTensor in the same process, which count from 1
_FIRST_KEY_OF_PROCESSES = 1 << 30
"""The first key of groups in one process of a cluster, and of collectives of programs that span processes."""
_KEYS_OF_PROCESS = 1 << 20
_TOKENS_PER_DEVICE = 3  # for collectives, for the opposite direction of permutes, and for collectives across processes

_TWO_THREADS = """\
{running} is running in thread "{owner}", and {called} was called from thread "{caller}".
A process runs one step at a time: the collectives of two would meet in a different order on each core.
Call every step from one thread, or one after the other."""

_FAILED = """\
{called} cannot run: a collective failed earlier in this process, after which TensorFlow runs none.
The first failure: {first}
Restart the process; training resumes from its last checkpoint."""


class CollectiveRuntime:
    """The keys, tokens and lock of one process. Use the instance that `collective_runtime()` returns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._group_keys: dict[tuple[str, ...], int] = {}
        self._pair_keys: dict[tuple[str, ...], int] = {}
        self._next_group_keys: dict[int | None, int] = {None: _FIRST_KEY}
        # Programs in one process and programs across processes can have collectives in the same groups of cores.
        firsts = {False: _FIRST_KEY, True: _FIRST_KEY_OF_PROCESSES}
        self._instance_keys = {spanning: itertools.count(first) for spanning, first in firsts.items()}
        self._tokens: dict[str, tuple[tf.Variable, ...]] = {}
        self._counters: dict[str, tuple[tf.Variable, ...]] = {}
        self._waited: dict[str, tf.Variable] = {}
        self._watchdog = Watchdog(self._on_stall)
        self._running: tuple[threading.Thread, str] | None = None
        self._failed: str | None = None
        self._cluster: Cluster | None = None
        self._num_steps = 0

    @property
    def cluster(self) -> Cluster | None:
        """The cluster that this process has joined, or None."""
        return self._cluster

    def join(self, cluster: Cluster) -> None:
        """Sets the cluster of this process. Call it once, before a mesh is made."""
        self._cluster = cluster

    @property
    def failed(self) -> str | None:
        """The first failure of a collective in this process, or None."""
        return self._failed

    @property
    def num_steps(self) -> int:
        """How many steps have begun, of all programs."""
        return self._num_steps

    @property
    def running(self) -> str | None:
        """The description of the running step, such as 'program "train"'; None between steps."""
        running = self._running
        return None if running is None else running[1]

    def is_in_collective(self) -> bool:
        """Whether a device of this process is in a collective now."""
        return self._watchdog.is_anybody_inside()

    def group_key(self, devices: Sequence[str]) -> int:
        """The key of the group of these devices, in this order."""
        with self._lock:
            return self._reserve(self._group_keys, tuple(devices), 1)

    def pair_keys(self, devices: Sequence[str]) -> int:
        """The first of n * n + n keys for n devices: one for each ordered pair, then one more for each device alone."""
        with self._lock:
            return self._reserve(self._pair_keys, tuple(devices), len(devices) * (len(devices) + 1))

    def _reserve(self, keys: dict[tuple[str, ...], int], devices: tuple[str, ...], count: int) -> int:
        if devices not in keys:
            home = self._home(devices)
            keys[devices] = self._next_group_keys.setdefault(
                home, _FIRST_KEY_OF_PROCESSES + _KEYS_OF_PROCESS * (home or 0)
            )
            self._next_group_keys[home] += count
        return keys[devices]

    def _home(self, devices: tuple[str, ...]) -> int | None:
        """The process that has all the devices; None if they are in several processes, or there is no cluster.

        Keys must mean the same in all processes. All processes give the same keys to groups that span several
        processes, since all make the same programs. But a process may also make programs for itself alone. So the keys
        of groups within one process come from a separate range for that process.
        """
        if self._cluster is None:
            return None
        processes = {tf.DeviceSpec.from_string(device).task or 0 for device in devices}
        return processes.pop() if len(processes) == 1 else None

    def new_instance_key(self, *, spans_processes: bool = False) -> int:
        """A new key for a collective. Programs that span processes and other programs have separate keys."""
        with self._lock:
            return next(self._instance_keys[spans_processes])

    def tokens(self, device: str) -> tuple[tf.Variable, ...]:
        """The device's ordering tokens, `int64[]`, on the device. They never change."""
        with self._lock:
            if device not in self._tokens:
                self._tokens[device] = tuple(_zero_on(device) for _ in range(_TOKENS_PER_DEVICE))
            return self._tokens[device]

    def counters(self, device: str, timeout_seconds: float) -> tuple[tf.Variable, ...]:
        """The device's counters, `int64[]`, one for each of its tokens, on the device where its core computes.

        Each counts how often the device entered or left a collective. If one stays at the same odd value for
        `timeout_seconds`, the watchdog concludes that the device waits in a collective for ever.
        """
        with self._lock:
            if device not in self._counters:
                home = home_device(device)
                self._counters[device] = tuple(_zero_on(home) for _ in range(_TOKENS_PER_DEVICE))
            counters = self._counters[device]
        self._watchdog.watch(device, counters, timeout_seconds)
        return counters

    def waited(self, device: str) -> tf.Variable:
        """`int64[]`: the microseconds that the device has spent in collectives between processes."""
        with self._lock:
            if device not in self._waited:
                self._waited[device] = _zero_on(home_device(device))
            return self._waited[device]

    @property
    def seconds_waited(self) -> float:
        """The seconds in collectives between processes, of the device of this process with the most."""
        with self._lock:
            return max((int(waited.numpy()) for waited in self._waited.values()), default=0) / 1e6

    @contextlib.contextmanager
    def step_in_progress(self, description: str) -> Iterator[None]:
        """A context in which a step runs. The same thread may enter it again.

        If a collective fails inside, the failure is recorded.

        Raises:
          UsageError: if another thread is inside a step.
          CollectiveError: if a collective failed earlier in this process.
          ProcessLostError: if a process of the cluster is gone.
        """
        self._check_not_failed(description)
        outermost = self._enter(description)
        try:
            yield
        except (tf.errors.OpError, CollectiveError) as error:
            if is_collective_failure(error):
                self.fail(f"{description}: {short_text(error)}")
            raise
        finally:
            if outermost:
                self._running = None

    def fail(self, what: str) -> None:
        """Records the failure of a collective. Only the text of the first failure is kept."""
        self._failed = self._failed or what

    def _on_stall(self, stall: Stall) -> None:
        others = "" if self._cluster is None else f". This process may wait for {self._cluster.waited_for()}"
        self.fail(f"{self.running or 'a step'}: {stall}{others}")

    def _check_not_failed(self, called: str) -> None:
        if self._cluster is not None:
            self._cluster.check_complete()
        if self._failed:
            raise CollectiveError(_FAILED.format(called=called, first=self._failed))

    def _enter(self, called: str) -> bool:
        thread = threading.current_thread()
        with self._lock:
            if self._running is None:
                self._running = thread, called
                self._num_steps += 1
                return True
            owner, running = self._running
        if owner is not thread:
            raise UsageError(_TWO_THREADS.format(running=running, owner=owner.name, called=called, caller=thread.name))
        return False


def _zero_on(device: str) -> tf.Variable:
    # It may be made while a tf.function is traced. The function must not own it, and must not be retraced for it.
    with tf.init_scope(), tf.device(device):
        zero = tf.zeros([], tf.int64)
        return tf.Variable(zero, trainable=False, name="token", experimental_enable_variable_lifting=False)


_RUNTIME = CollectiveRuntime()


def collective_runtime() -> CollectiveRuntime:
    """The collective runtime of this process."""
    return _RUNTIME


def step_in_progress(description: str) -> contextlib.AbstractContextManager[None]:
    """`collective_runtime().step_in_progress(description)`."""
    return _RUNTIME.step_in_progress(description)
