"""Compares random bits by position with TensorFlow's generators, in one run: `python benchmarks/random_bits.py`.

TensorFlow's generators draw one whole tensor in one order, and cannot draw a slice of it. So they are a reference for
the cost, not a replacement. Times are medians of rounds in which the candidates take turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from meshtf import random as positions
from meshtf.random.compiled_segments import segment

CORES = 8
KEY = (1, 2)
SHAPES = [[1024, 256], [256, 1024], [256, 256], [8192, 256], [1024], [256], [256, 3, 64], [64, 256], [512, 256]]
SHAPES += [[128, 256], [16, 16], [8192]]

Step = Callable[[tf.Tensor], tf.Tensor]


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def take_turns(candidates: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each candidate, after one call that compiles it."""
    for run in candidates.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            times[name].append(seconds(run))
    return {name: statistics.median(each) for name, each in times.items()}


def show(title: str, times: dict[str, float], pairs: list[tuple[str, str]]) -> None:
    """Prints a row for each pair of our candidate and TensorFlow's."""
    for ours, theirs in pairs:
        row = f"{times[ours] * 1e3:9.2f} {times[theirs] * 1e3:9.2f} {times[ours] / times[theirs]:7.2f}"
        print(f"{title:<34} {ours:<18} {row}")


def one_device(size: int, rounds: int) -> None:
    """Measures `size` elements on one device, with keys that are given at run time."""
    key, seed, begin = tf.constant(KEY, tf.uint32), tf.constant(KEY), tf.constant([0])
    programs: dict[str, tuple[Step, tf.Tensor]] = {
        "uniform": (lambda k: positions.uniform(k, begin, [size], [size]), key),
        "normal": (lambda k: positions.normal(k, begin, [size], [size]), key),
        "truncated_normal": (lambda k: positions.truncated_normal(k, begin, [size], [size]), key),
        "tf uniform": (lambda s: tf.random.stateless_uniform([size], s), seed),
        "tf normal": (lambda s: tf.random.stateless_normal([size], s), seed),
        "tf truncated": (lambda s: tf.random.stateless_truncated_normal([size], s), seed),
    }
    compiled = {name: (tf.function(program), argument) for name, (program, argument) in programs.items()}
    times = take_turns({name: lambda p=p, a=a: p(a).numpy() for name, (p, a) in compiled.items()}, rounds)
    pairs = [("uniform", "tf uniform"), ("normal", "tf normal"), ("truncated_normal", "tf truncated")]
    show(f"1 device, {size:.0e} elements", times, pairs)


def on_cores(per_core: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]) -> Callable[[tf.Tensor], tf.Tensor]:
    """A program that runs `per_core(core, step)` on every virtual CPU, traced once, like meshtf's programs."""
    core_function = tf.function(
        per_core,
        autograph=False,
        input_signature=[tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int64)],
        experimental_attributes={"_noinline": True},
    )

    @tf.function(autograph=False)
    def program(step: tf.Tensor) -> tf.Tensor:
        results = []
        for core in range(CORES):
            with tf.device(f"CPU:{core}"):
                results.append(core_function(tf.constant(core, tf.int64), step))
        with tf.device("CPU:0"):
            return tf.stack(results)

    return program


def eight_cores(size: int, rounds: int) -> None:
    """Measures `size` elements in total, split over the first or the second axis, in one traced program."""
    side = 1000
    whole = [size // side, side]
    rows, columns = [whole[0] // CORES, side], [whole[0], side // CORES]

    def ours(core: tf.Tensor, step: tf.Tensor, part: list[int], axis: int) -> tf.Tensor:
        begin = tf.one_hot(axis, 2, dtype=tf.int64) * core * part[axis]
        return positions.uniform(positions.fold_in(KEY, step), begin, part, whole)[0, 0]

    def theirs(core: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform(rows, tf.stack([core, step]))[0, 0]

    programs = {
        "rows": on_cores(lambda core, step: ours(core, step, rows, 0)),
        "columns": on_cores(lambda core, step: ours(core, step, columns, 1)),
        "tf uniform": on_cores(theirs),
    }
    step = tf.constant(3, tf.int64)
    times = take_turns({name: lambda p=p: p(step).numpy() for name, p in programs.items()}, rounds)
    show(f"8 virtual CPUs, {size:.0e} in all", times, [("rows", "tf uniform"), ("columns", "tf uniform")])


def first_calls() -> None:
    """Measures the cost of compiling. It must run first, since segments are compiled once per device and process."""

    def variables(core: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        sums = []
        for number in range(30):
            whole = SHAPES[number % len(SHAPES)]
            part = [whole[0] // CORES, *whole[1:]]
            begin = tf.concat([[core * part[0]], tf.zeros([len(whole) - 1], tf.int64)], 0)
            key = positions.fold_in(KEY, positions.stable_hash(f"variable_{number}"))
            key = tf.constant(key, tf.uint32) + tf.cast(step, tf.uint32)  # or all is folded to a constant
            sums.append(tf.reduce_sum(positions.truncated_normal(key, begin, part, whole, stddev=0.01 * (number + 1))))
        return tf.add_n(sums)

    def dropouts(core: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        sums = []
        for number in range(40):
            key = positions.fold_in(positions.fold_in(KEY, number), step)
            mask = positions.keep_mask(key, [core * 16, 0], [16, 1000], [16 * CORES, 1000], 0.9)
            sums.append(tf.reduce_sum(tf.cast(mask, tf.float32)))
        return tf.add_n(sums)

    for title, per_core in (("30 variables of 12 shapes", variables), ("40 dropouts of one shape", dropouts)):
        program, step = on_cores(per_core), tf.constant(0, tf.int64)
        before = segment.cache_info().currsize
        first = seconds(lambda p=program, s=step: p(s).numpy())
        compiled = segment.cache_info().currsize - before
        later = statistics.median(seconds(lambda p=program, s=step: p(s).numpy()) for _ in range(5))
        print(f"{title}, 8 virtual CPUs: first call {first:.2f} s, {compiled} segments; later {later * 1e3:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**6, 10**7], help="elements on one device")
    parser.add_argument("--rounds", type=int, default=21, help="rounds of each comparison")
    options = parser.parse_args()
    # As for meshtf's own programs. Grappler would optimize the per-core function again for every core.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    physical = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(physical, [tf.config.LogicalDeviceConfiguration()] * CORES)
    print(f"TensorFlow {tf.__version__}, {os.cpu_count()} cores; medians of {options.rounds} rounds")
    first_calls()
    print(f"{'':<34} {'':<18} {'ours ms':>9} {'tf ms':>9} {'ratio':>7}")
    for size in options.sizes:
        one_device(size, options.rounds)
    eight_cores(10**6, options.rounds)


if __name__ == "__main__":
    main()
