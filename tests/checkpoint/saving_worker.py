"""Trains and saves at every step, in children that are killed while they save; each goes on where the one before was.

    python saving_worker.py FOLDER KILLS SEED

Every child writes to FOLDER/log a line `resumed STEP DIGEST`, and then `step STEP DIGEST` after each step.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
import time
from pathlib import Path

import tensorflow as tf

import meshtf as mtf
from meshtf.checkpoint import BackgroundSaver, CheckpointFolder, restore

SHAPE = [("a", 4), ("b", 100_000)]
NOT_YET_SEEN = 300.0
"""Seconds until a child must have written that many lines."""
LINES_BEFORE_A_KILL = 6
"""By then a child has saved at least once: a save begins when the one before is whole."""


def build() -> mtf.Function:
    """A step that depends on all steps before: a moving mean of random numbers."""

    def walk(mesh: mtf.Mesh) -> None:
        v = mtf.get_variable(mesh, "v", SHAPE, initializer=mtf.zeros)
        mtf.assign(v, v * 0.9 + mtf.random_uniform(mesh, SHAPE))

    return mtf.function(walk, mtf.SpmdMeshImpl("all:2", "a:all"))


def digest(store: mtf.VariableStore) -> str:
    return hashlib.sha256(store["v"].tobytes() + store["walk/step"].tobytes()).hexdigest()


def train(folder: Path) -> None:
    """Resumes, and trains until it is killed."""
    mtf.virtual_cpus(2)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    checkpoints, program = CheckpointFolder(folder / "checkpoints", keep=2), build()
    log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    checkpoints.remove_unfinished()
    saved = checkpoints.newest_readable()
    step = 0
    if saved is not None:
        restore(saved, [program])
        step = saved.step
        os.write(log, f"resumed {step} {digest(program.variables)}\n".encode())
    with BackgroundSaver(checkpoints) as saver:
        while True:
            program()
            step += 1
            os.write(log, f"step {step} {digest(program.variables)}\n".encode())
            saver.save(step, program.variables, {})


def main(folder: Path, kills: int, seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(kills):
        lines = num_lines(folder)
        # TensorFlow may be forked once it is imported, before it has started: far cheaper than to import it again.
        child = os.fork()
        if child == 0:
            train(folder)
        deadline = time.monotonic() + NOT_YET_SEEN
        while num_lines(folder) < lines + LINES_BEFORE_A_KILL and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(generator.uniform(0.0, 0.2))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "a child ended by itself"


def num_lines(folder: Path) -> int:
    log = folder / "log"
    return log.read_bytes().count(b"\n") if log.exists() else 0


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
