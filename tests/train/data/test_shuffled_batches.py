"""Endless batches, in programs that end."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import tensorflow as tf
from meshtf.train.data._shuffled_batches import ShuffledBatches

def slowly(indices, places):
    def made(x):
        return sum(range(1_000_000)) * 0 + x
    return {"x": tf.ensure_shape(tf.numpy_function(made, [indices], tf.int64), [2])}

batches = [ShuffledBatches(slowly, 100, 2, seed, None, slice(0, 2)) for seed in range(12)]
print([next(own)["x"].shape[0] for own in batches])
"""


@pytest.mark.timeout(500)
def test_a_program_ends_while_batches_are_made() -> None:
    """Without an end of their own, what makes them in threads waits for Python, and Python for them."""
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{[2] * 12}\n"
