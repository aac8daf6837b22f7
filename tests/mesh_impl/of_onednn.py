"""What oneDNN says of itself, in a process of its own."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Mapping

_SETTINGS = ("TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "XLA_FLAGS")


@dataclasses.dataclass(frozen=True)
class Said:
    """`instructions`: the set that it multiplies by. `printed`: the last line that the program printed."""

    instructions: str
    printed: str


def said_by_onednn(program: str, environment: Mapping[str, str]) -> Said:
    """What comes of a program to which TensorFlow is known as `tf`, and of a product of matrices behind it."""
    others = {k: v for k, v in os.environ.items() if k not in _SETTINGS}
    done = subprocess.run(
        [sys.executable, "-c", f"import tensorflow as tf\n{program}\nx = tf.ones([64, 64])\nx = tf.matmul(x, x)"],
        env={**others, **environment, "ONEDNN_VERBOSE": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = re.search(r"^onednn_verbose.*,cpu,isa:(.*)$", done.stdout, re.MULTILINE)
    assert found, done.stdout
    own = [line for line in done.stdout.splitlines() if not line.startswith("onednn_verbose")]
    return Said(found[1], own[-1])
