"""Endless batches, in programs that end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from meshtf.train.data.shuffled_batches import shuffled

_SCRIPT = """
import atexit, sys
atexit.register(lambda: print(tokens[0:2].tolist()))  # runs last
from pathlib import Path
import numpy as np
import tensorflow as tf
from meshtf.train.data.shuffled_batches import ShuffledBatches
from meshtf.train.data.token_folders.token_file import TokenFile

tokens = TokenFile(Path(sys.argv[1]), np.dtype("int64"), 2, 10)

def slowly(indices, places):
    def made(x):
        return sum(range(500_000)) * 0 + x + 0 * tokens[0:2]
    return {"x": tf.ensure_shape(tf.numpy_function(made, [indices], tf.int64), [2])}

batches = [ShuffledBatches(slowly, 100, 2, seed, None, slice(0, 2)) for seed in range(4)]
print([next(own)["x"].shape[0] for own in batches])
"""


@pytest.mark.timeout(500)
def test_a_program_ends_while_batches_are_made(tmp_path: Path) -> None:
    """Without an end of their own, what makes them in threads waits for Python, and Python for them. Until then the
    tokens on disk can be read."""
    np.arange(2).tofile(tmp_path / "tokens")
    script = [sys.executable, "-c", _SCRIPT, str(tmp_path / "tokens")]
    done = subprocess.run(script, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{[2] * 4}\n[0, 1]\n", done.stderr


def test_each_epoch_and_seed_has_a_permutation_of_its_own() -> None:
    def order(epoch: int, seed: int) -> tuple[int, ...]:
        return tuple(int(shuffled(tf.constant(10 * epoch + i, tf.int64), 10, seed)) for i in range(10))

    orders = [order(epoch, seed) for epoch in range(3) for seed in (0, 1)]
    assert all(sorted(each) == list(range(10)) for each in orders)
    assert len(set(orders)) == 6
