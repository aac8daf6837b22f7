"""Measures how much saving a checkpoint slows down the training around it.

    python -m benchmarks.checkpoint

It trains the Transformer of benchmarks.transformer_step, with AdamW's state, on 8 virtual CPUs. By default it repeats
ten times: ten steps, then a save, and further steps until the checkpoint is written. The first step of a save includes
the copy of the slices. The table gives medians, their ratios to the other steps, and the time of saving alone. For all
steps around a save, the ratio is that of their mean to the ten steps before, as the median over the saves.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

import meshtf as mtf
from benchmarks.measuring.machine import machine
from benchmarks.transformer_step import examples, meshtf_step, with_weights
from meshtf.checkpoint import BackgroundSaver, CheckpointFolder, restore

STEPS_BETWEEN = 10


@dataclasses.dataclass
class Times:
    """Times in seconds; `ratios` compare the steps around each save with the steps before it."""

    others: list[float] = dataclasses.field(default_factory=list)
    around: list[float] = dataclasses.field(default_factory=list)
    with_copy: list[float] = dataclasses.field(default_factory=list)
    while_writing: list[float] = dataclasses.field(default_factory=list)
    copies: list[float] = dataclasses.field(default_factory=list)
    until_whole: list[float] = dataclasses.field(default_factory=list)
    ratios: list[float] = dataclasses.field(default_factory=list)


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def measure(step: Callable[[], object], store: mtf.VariableStore, folder: Path, saves: int) -> Times:
    times = Times()
    with BackgroundSaver(CheckpointFolder(folder)) as saver:
        saver.save(0, store, {})  # makes the buffers
        saver.wait()
        for number in range(1, saves + 1):
            before = [seconds(step) for _ in range(STEPS_BETWEEN)]
            began = time.perf_counter()
            times.copies.append(seconds(lambda number=number: saver.save(number, store, {})))
            step()
            steps = [time.perf_counter() - began]
            while saver.is_writing:
                steps.append(seconds(step))
            times.until_whole.append(time.perf_counter() - began)
            times.others += before
            times.ratios.append(statistics.mean(steps) / statistics.median(before))
            times.with_copy.append(steps[0])
            times.while_writing += steps[1:]
            times.around.append(statistics.mean(steps))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--saves", type=int, default=10)
    parser.add_argument("--mesh", default="all:8")
    parser.add_argument("--layout", default="batch:all")
    arguments = parser.parse_args()
    mtf.virtual_cpus(8)
    print(machine())
    program = with_weights(meshtf_step(mtf.SpmdMeshImpl(arguments.mesh, arguments.layout)))
    inputs, targets = map(tf.constant, examples())

    def step() -> float:
        return float(program(inputs=inputs, targets=targets))

    for _ in range(3):
        step()
    with tempfile.TemporaryDirectory() as folder:
        times = measure(step, program.variables, Path(folder), arguments.saves)
        checkpoints = CheckpointFolder(folder)
        synchronous = seconds(lambda: checkpoints.save(10**6, program.variables, {}))
        verified = seconds(checkpoints.newest_readable)
        restored = seconds(lambda: restore(checkpoints.open(10**6), [meshtf_step(mtf.SpmdMeshImpl("all:1", ""))]))
        num_bytes = checkpoints.open(10**6).num_bytes
    print(f"checkpoint of {num_bytes / 2**20:.1f} MiB, {arguments.saves} saves")
    other = statistics.median(times.others)
    ratios = {"around": statistics.median(times.ratios)}
    for name in ("others", "with_copy", "while_writing"):
        ratios[name] = statistics.median(getattr(times, name) or [0.0]) / other
    for name, title in ROWS.items():
        values = getattr(times, name)
        ratio = f"{ratios[name]:6.2f}" if name in ratios else ""
        print(f"{title:42} {statistics.median(values or [0.0]) * 1e3:9.1f} ms {ratio:>6}  ({len(values)} measured)")
    for name, value in {"saved at once": synchronous, "verified": verified, "restored on one core": restored}.items():
        print(f"{name:42} {value * 1e3:9.1f} ms")


ROWS = {
    "others": "other steps",
    "around": "steps around a save, copy included",
    "with_copy": "  the first, with the copy",
    "while_writing": "  the others, while it is written",
    "copies": "the copy alone",
    "until_whole": "until the checkpoint is whole",
}

if __name__ == "__main__":
    main()
