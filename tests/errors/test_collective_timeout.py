"""A core that stays away from a collective: in a process of its own, which can then run no other."""

from __future__ import annotations

from pathlib import Path

from tests.fresh_process import run_fresh

PROGRAM = """
import os, signal, subprocess, time
import numpy as np, tensorflow as tf
import meshtf as mtf
mtf.virtual_cpus(4)

def sleep(x):
    if x[0] == 6:
        time.sleep(7)
    if x[0] == 5:
        time.sleep(0.5)  # the other cores wait
        subprocess.Popen(["sh", "-c", f"sleep 3; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
    return x

def train_step(x):
    y = mtf.cwise(lambda x: tf.numpy_function(sleep, [x], tf.float32), x, name="load")
    loss = mtf.reduce_sum(y, name="loss")
    return mtf.exp(loss)

mesh = mtf.SpmdMeshImpl("rows:4", "batch:rows", collective_timeout_seconds=2, share_memory=False)
step = mtf.function(train_step, mesh, {"x": mtf.TensorSpec("batch:8")})
print(step(np.zeros(8, np.float32)).numpy())
print(step(np.float32([0, 0, 5, 0, 0, 0, 0, 0])).numpy() > 1)
for _ in range(2):
    start = time.time()
    try:
        step(np.arange(8, dtype=np.float32))
    except Exception as error:
        print(type(error).__module__, type(error).__name__, error.__cause__, error.__suppress_context__)
        print(error)
        print("after", round(time.time() - start), "seconds")
"""


def test_the_message(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(PROGRAM)
    done = run_fresh([str(file)])
    assert done.status == 0, done.stderr[-3000:]
    text = done.stdout
    first, second = text.split("after", 1)
    # Stopped for longer than the timeout, the process went on.
    assert text.startswith("1.0\nTrue\nmeshtf.errors CollectiveError None True\n")
    line = PROGRAM[: PROGRAM.index("loss = ")].count("\n") + 1
    assert f"all_reduce over mesh axes rows, for loss, at {file}:{line} in train_step" in first
    assert "no progress for 2 seconds; waiting: CPU:0, CPU:1, CPU:2; in no collective: CPU:3" in first
    assert "The process must be restarted" in first
    assert 'program "train_step" cannot run: a collective failed earlier in this process' in second
    assert "Restart the process; training resumes from its last checkpoint" in second
    assert "Traceback" not in text + done.stderr
    assert "{{node" not in text
