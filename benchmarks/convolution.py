"""A 3x3 convolution over 512x512 images on 8 virtual CPUs, against one: `python -m benchmarks.convolution`.

The same meshtf program runs on one virtual CPU, and on eight with height and width split over the mesh. TensorFlow's
`tf.nn.conv2d` on one device is measured for comparison. Times are medians of rounds in which the candidates take turns.
Eight virtual CPUs share the machine's cores, so the best possible ratio is 1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

import meshtf as mtf
from benchmarks.measuring.machine import machine

SIZE, LIMIT = 512, 1.6
IMAGE, KERNEL = "batch:{batch} height:512 width:512 in:{channels}", "fh:3 fw:3 in:{channels} out:{channels}"


def forward(image: mtf.Tensor, kernel: mtf.Tensor) -> mtf.Tensor:
    return mtf.reduce_sum(mtf.conv2d(image, kernel))


def step(image: mtf.Tensor, kernel: mtf.Tensor) -> list[mtf.Tensor]:
    """Computes the convolution and both its gradients."""
    y = mtf.conv2d(image, kernel)
    loss = mtf.reduce_sum(mtf.square(y))
    return [loss, *(mtf.reduce_sum(g) for g in mtf.gradients(loss, [image, kernel]) if g is not None)]


def candidates(program: Callable, image: np.ndarray, kernel: np.ndarray) -> dict[str, Callable[[], object]]:
    """The program on one core, and on eight in two layouts. The arrays are variables, so that feeding is not timed."""
    channels, batch = image.shape[-1], image.shape[0]

    def body(mesh: mtf.Mesh) -> object:
        shapes = [s.format(batch=batch, channels=channels) for s in (IMAGE, KERNEL)]
        x = mtf.get_variable(mesh, "image", shapes[0], initializer=mtf.RandomNormal(stddev=1.0))
        w = mtf.get_variable(mesh, "kernel", shapes[1], initializer=mtf.RandomNormal(stddev=0.1))
        return program(x, w)

    meshes = {
        "one core": ("all:1", ""),
        "8, height": ("rows:8", "height:rows"),
        "8, both": ("rows:4;cols:2", "height:rows;width:cols"),
    }
    found: dict[str, Callable[[], object]] = {}
    for name, (mesh_shape, layout) in meshes.items():
        run = mtf.function(body, mtf.SpmdMeshImpl(mesh_shape, layout), inputs={})
        found[name] = run
    return found


def tensorflow(image: np.ndarray, kernel: np.ndarray) -> Callable[[], object]:
    x, w = tf.Variable(image), tf.Variable(kernel)
    return tf.function(lambda: tf.reduce_sum(tf.nn.conv2d(x, w, 1, "SAME")))


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    tf.nest.map_structure(lambda y: y.numpy(), run())
    return time.perf_counter() - start


def take_turns(runs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    for run in runs.values():
        seconds(run)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(seconds(run))
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    mtf.virtual_cpus(8)
    print(f"{machine()}; {options.batch} images, {options.channels} channels, medians of {options.rounds} rounds")
    numbers = np.random.default_rng(0)
    image = numbers.standard_normal((options.batch, SIZE, SIZE, options.channels)).astype(np.float32)
    kernel = numbers.standard_normal((3, 3, options.channels, options.channels)).astype(np.float32)
    for title, program in (("convolution", forward), ("with gradients", step)):
        runs = candidates(program, image, kernel)
        if program is forward:
            runs["tf.nn.conv2d"] = tensorflow(image, kernel)
        times = take_turns(runs, options.rounds)
        for name, found in times.items():
            ratio = found / times["one core"]
            verdict = "" if not name.startswith("8") else "  within the limit" if ratio <= LIMIT else "  OVER THE LIMIT"
            print(f"{title:<16} {name:<14} {found * 1e3:8.1f} ms {ratio:6.2f}{verdict}")


if __name__ == "__main__":
    main()
