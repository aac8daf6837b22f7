"""What XLA has compiled for one virtual CPU of a process, the others find in a folder."""

from __future__ import annotations

import glob
import os
from pathlib import Path

from tests.fresh_process import run_fresh

COUNT = """
import glob
import os
import tensorflow as tf
import meshtf as mtf

os.environ.pop("TF_XLA_FLAGS", None)
if kept_by_user := os.environ.get("USERS_FLAGS"):
    os.environ["TF_XLA_FLAGS"] = kept_by_user
mtf.virtual_cpus(4)
assert os.environ.get("TF_XLA_FLAGS") == kept_by_user
twice = tf.function(lambda x: x * 2 + 1, jit_compile=True)
for i in range(4):
    with tf.device(f"CPU:{i}"):
        assert twice(tf.constant([1.0])).numpy() == 3
folders = glob.glob(f"/dev/shm/meshtf_compiled_{os.getpid()}_*")
print(os.getpid(), [len(os.listdir(folder)) for folder in folders])
"""


def test_each_segment_is_compiled_once_and_the_folder_goes() -> None:
    done = run_fresh(["-c", COUNT])
    pid, _, counts = done.stdout.partition(" ")
    assert (done.status, counts) == (0, "[1]\n"), done.stderr
    assert glob.glob(f"/dev/shm/meshtf_compiled_{pid}_*") == []


def test_a_folder_of_the_users_own_is_taken(tmp_path: Path) -> None:
    flags = f"--tf_xla_persistent_cache_directory={tmp_path / 'own'}"
    done = run_fresh(["-c", COUNT], environment={"USERS_FLAGS": flags})
    assert (done.status, done.stdout.partition(" ")[2]) == (0, "[]\n"), done.stderr
    assert len(os.listdir(tmp_path / "own")) == 1
