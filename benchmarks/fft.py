"""Compares the Fourier transform of 128^3 numbers on 8 virtual CPUs with one device.

    python -m benchmarks.fft

The numbers are complex64, in a variable that is split over its first dimension. "pencils" leaves the result in the
layout of the last transform, split over another dimension. "there and back" stores it in the variable's layout. Rounds
alternate in one process. The table gives the median time of a step, and its ratio to the one device's in the same
rounds. The target is 1.6.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import meshtf as mtf
from benchmarks.measuring.machine import machine

CORES = 8
TARGET = 1.6


def one_device(array: np.ndarray) -> Callable[[], tf.Tensor]:
    with tf.device("CPU:0"):
        x, y = tf.Variable(array), tf.Variable(array)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        with tf.device("CPU:0"):
            y.assign(tf.signal.fft3d(x.read_value()))
            return tf.constant(0)

    return step


def split(array: np.ndarray, *, is_back: bool) -> Callable[[], tf.Tensor]:
    sizes = dict(zip("abc", array.shape, strict=True))

    def fft(mesh: mtf.Mesh) -> mtf.Tensor:
        x = mtf.get_variable(mesh, "x", list(sizes.items()), tf.complex64, np.zeros(array.shape, np.complex64))
        y = mtf.fft(x, list(sizes))
        if not is_back:
            y = mtf.with_layout(y, "b:all")
            for name in sizes:
                y = mtf.rename_dimension(y, name, f"k{name}")
        result = mtf.get_variable(mesh, "y", y.shape, tf.complex64, np.zeros(array.shape, np.complex64))
        mtf.assign(result, y)
        return mtf.constant(mesh, 0.0)

    step = mtf.function(fft, mtf.SpmdMeshImpl(f"all:{CORES}", "a:all" if is_back else "a:all;kb:all"))
    step()
    step.variables["x"] = array
    step()
    expected = np.fft.fftn(array)
    assert np.abs(step.variables["y"] - expected).max() < 1e-4 * np.abs(expected).max()
    return step


def milliseconds(step: Callable[[], tf.Tensor], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        result = step()
    result.numpy()
    return (time.perf_counter() - start) / count * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    mtf.virtual_cpus(CORES)
    numbers = np.random.default_rng(0).standard_normal((2, *[arguments.size] * 3)).astype(np.float32)
    array = numbers[0] + 1j * numbers[1]
    programs = {
        "one device": one_device(array),
        f"{CORES} virtual CPUs, pencils": split(array, is_back=False),
        f"{CORES} virtual CPUs, there and back": split(array, is_back=True),
    }
    times: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(arguments.rounds + 1):
        for name, step in programs.items():
            taken = milliseconds(step, arguments.steps)
            if number:  # the first round warms up
                times[name].append(taken)
    print(machine())
    base = times["one device"]
    for name, own in times.items():
        ratio = statistics.median(a / b for a, b in zip(own, base, strict=True))
        print(f"{name:35} {statistics.median(own):8.1f} ms   {ratio:5.2f}   (target {TARGET})")


if __name__ == "__main__":
    main()
