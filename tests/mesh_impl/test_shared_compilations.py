"""What XLA has compiled for one virtual CPU of a process, the others find in a folder."""

from __future__ import annotations

import os
from pathlib import Path

from tests.fresh_process import run_fresh

COUNT = """
import os
import tempfile
import tensorflow as tf
import meshtf as mtf

tempfile.tempdir = os.environ["TMPDIR"]
os.environ.pop("TF_XLA_FLAGS", None)
if kept_by_user := os.environ.get("USERS_FLAGS"):
    os.environ["TF_XLA_FLAGS"] = kept_by_user
mtf.virtual_cpus(4)
assert os.environ.get("TF_XLA_FLAGS") == kept_by_user
twice = tf.function(lambda x: x * 2 + 1, jit_compile=True)
for i in range(4):
    with tf.device(f"CPU:{i}"):
        assert twice(tf.constant([1.0])).numpy() == 3
folders = [f for f in os.listdir(os.environ["TMPDIR"]) if f.startswith("meshtf_compiled_")]
print([len(os.listdir(os.path.join(os.environ["TMPDIR"], f))) for f in folders])
"""


def test_each_segment_is_compiled_once_and_the_folder_goes(tmp_path: Path) -> None:
    done = run_fresh(["-c", COUNT], environment={"TMPDIR": str(tmp_path)})
    assert (done.status, done.stdout) == (0, "[1]\n"), done.stderr
    assert os.listdir(tmp_path) == []


def test_a_folder_of_the_users_own_is_taken(tmp_path: Path) -> None:
    flags = f"--tf_xla_persistent_cache_directory={tmp_path / 'own'}"
    done = run_fresh(["-c", COUNT], environment={"TMPDIR": str(tmp_path), "USERS_FLAGS": flags})
    assert (done.status, done.stdout) == (0, "[]\n"), done.stderr
    assert len(os.listdir(tmp_path / "own")) == 1
