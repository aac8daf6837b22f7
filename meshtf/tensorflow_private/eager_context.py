"""TensorFlow's state in this process: whether it has started, and eager execution where a program has disabled it.

Public ways that do not do:

- `Context._context_handle`: no public name tells whether TensorFlow has started. `tf.config.list_logical_devices`
  starts it. `tf.config.set_visible_devices` refuses to change devices once it has, but changes them if it has not.
- `context.eager_mode`: `tf.compat.v1.enable_eager_execution` refuses after a graph was made, and holds for the whole
  process. `tf.init_scope` leaves functions, and stays in the outermost graph where eager execution is disabled.
"""

from __future__ import annotations

import contextlib
from typing import Any, cast

from tensorflow.python.eager import context


def running() -> Any:
    """The state itself, which exists from the first call on. For the modules of this room only."""
    return cast("Any", context).context()


def has_started() -> bool:
    """Whether TensorFlow has started: then it knows its devices, and joins no other processes any more."""
    return running()._context_handle is not None


def eager_mode() -> contextlib.AbstractContextManager[None]:
    """Runs operations at once inside, in this thread, even under `tf.compat.v1.disable_eager_execution()`."""
    return context.eager_mode()
