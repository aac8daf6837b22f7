"""The lines as the user wrote them, inside a `tf.function` that autograph has rewritten.

No public name maps a line of a rewritten function back. `tf.autograph.to_code` returns only the rewritten text.
`traceback.extract_stack` shows a temporary file.
"""

from __future__ import annotations

import os
import traceback
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.util import tf_stack

_TENSORFLOW = os.path.join(os.path.dirname(tf.__file__), "")


def written_frames() -> list[traceback.FrameSummary]:
    """The frames of this thread outside of TensorFlow, outermost first, with the lines as they were written."""
    frames = cast("Any", tf_stack).extract_stack()
    return [frame for frame in frames if not frame.filename.startswith(_TENSORFLOW)]
