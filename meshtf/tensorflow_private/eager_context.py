"""TensorFlow's state in this process: whether it has started, and eager execution even if a program has disabled it.

Public alternatives that are not sufficient:

- `Context._context_handle`: no public name tells whether TensorFlow has started. `tf.config.list_logical_devices`
  starts it. `tf.config.set_visible_devices` raises an error if it has started, but otherwise changes the devices.
- `context.eager_mode`: `tf.compat.v1.enable_eager_execution` fails after a graph was made, and affects the whole
  process. `tf.init_scope` leaves functions, but stays in the outermost graph if eager execution is disabled.
"""

from __future__ import annotations

import contextlib
from typing import Any, cast

from tensorflow.python.eager import context


def running() -> Any:
    """TensorFlow's eager context, created by the first call. Only for the modules of this folder."""
    return cast("Any", context).context()


def has_started() -> bool:
    """Whether TensorFlow has started. Its devices are then fixed, and it can no longer join other processes."""
    return running()._context_handle is not None


def eager_mode() -> contextlib.AbstractContextManager[None]:
    """A context with eager execution in this thread, even under `tf.compat.v1.disable_eager_execution()`."""
    return context.eager_mode()
