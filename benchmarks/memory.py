"""Compares measured peak memory with the report's prediction.

    python -m benchmarks.memory

Each measurement has a separate process. It is the high-water mark of resident memory while a training step runs, minus
the resident memory before the program made its variables. The table gives the median of five, and whether it is within
the limits. On one core it may differ by at most 15 % from the prediction. On several cores, whose slices are all in one
process, it may be at most the prediction for one core times the cores. A small program of the same kind runs first, so
that memory for TensorFlow's first use is not counted.

Freed memory returns to the system at once: TensorFlow uses malloc (TF_ONEDNN_USE_SYSTEM_ALLOCATOR), and malloc maps
blocks of 64 KiB or more directly. With `--pool` both have their defaults. Then TensorFlow keeps the memory that making
the variables needed, and allocates larger chunks than requested. Plans do not count these.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import gc
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import tensorflow as tf

import meshtf as mtf
from benchmarks.measuring.machine import machine

MEBIBYTE = 1 << 20
STEPS = 3
ONE_CORE_LIMIT = 0.15
"""The largest relative difference of measured and predicted memory on one core."""
GIVES_BACK = {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1", "MALLOC_MMAP_THRESHOLD_": f"{1 << 16}"}
"""The environment of a process that returns freed memory to the system."""

Step: TypeAlias = Callable[[mtf.Tensor], mtf.Tensor]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of a program, for much or little memory."""

    batch: int
    width: int
    layers: int


LARGE, SMALL = Sizes(batch=4096, width=1024, layers=6), Sizes(batch=32, width=64, layers=2)


def wide_batch(sizes: Sizes) -> tuple[Step, mtf.Dimension, mtf.Dimension]:
    """A program whose memory is mostly activations: a residual perceptron, with plain gradient descent."""
    batch, d_model, d_ff = _dims(dataclasses.replace(sizes, width=sizes.width // 2))

    def step(x: mtf.Tensor) -> mtf.Tensor:
        for i in range(sizes.layers):
            with mtf.variable_scope(f"layer_{i}"):
                x = _block(x, d_model, d_ff)
        return _trained(x, mtf.optimize.SgdOptimizer(1e-3))

    return step, batch, d_model


def many_weights(sizes: Sizes) -> tuple[Step, mtf.Dimension, mtf.Dimension]:
    """A program whose memory is mostly weights and AdamW's state."""
    batch, d_model, d_ff = _dims(dataclasses.replace(sizes, batch=max(4, sizes.batch // 32)))

    def step(x: mtf.Tensor) -> mtf.Tensor:
        for i in range(sizes.layers):
            with mtf.variable_scope(f"layer_{i}"):
                x = _block(x, d_model, d_ff)
        return _trained(x, mtf.optimize.AdamWOptimizer(1e-3))

    return step, batch, d_model


def scanned(sizes: Sizes, recompute: bool) -> tuple[Step, mtf.Dimension, mtf.Dimension]:
    """A program whose layers are a scan over stacked weights."""
    batch, d_model, d_ff = _dims(dataclasses.replace(sizes, width=sizes.width // 2))

    def layer(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        return [_block(carried[0], d_model, d_ff)], []

    def step(x: mtf.Tensor) -> mtf.Tensor:
        (y,), _ = mtf.layer_stack(layer, x, mtf.Dimension("layers", sizes.layers), recompute=recompute)
        return _trained(y, mtf.optimize.MomentumOptimizer(1e-3, 0.9))

    return step, batch, d_model


def _dims(sizes: Sizes) -> tuple[mtf.Dimension, mtf.Dimension, mtf.Dimension]:
    return (
        mtf.Dimension("batch", sizes.batch),
        mtf.Dimension("d_model", sizes.width),
        mtf.Dimension("d_ff", 4 * sizes.width),
    )


def _block(x: mtf.Tensor, d_model: mtf.Dimension, d_ff: mtf.Dimension) -> mtf.Tensor:
    wi = mtf.get_variable(x.mesh, "wi", [d_model, d_ff])
    wo = mtf.get_variable(x.mesh, "wo", [d_ff, d_model])
    hidden = mtf.relu(mtf.einsum([x, wi], output_shape=[x.shape.dims[0], d_ff]))
    return x + mtf.einsum([hidden, wo], output_shape=x.shape)


def _trained(y: mtf.Tensor, optimizer: mtf.optimize.Optimizer) -> mtf.Tensor:
    loss = mtf.reduce_mean(mtf.square(y))
    optimizer.minimize(loss)
    return loss


PROGRAMS: dict[str, Callable[[Sizes], tuple[Step, mtf.Dimension, mtf.Dimension]]] = {
    "wide batch, SGD": wide_batch,
    "many weights, AdamW": many_weights,
    "scan, momentum": lambda sizes: scanned(sizes, recompute=False),
    "scan recomputed, momentum": lambda sizes: scanned(sizes, recompute=True),
}
MESHES = ("all:1", "all:4")


def built(name: str, sizes: Sizes, mesh_shape: str) -> tuple[mtf.Function, mtf.TensorSpec]:
    step, batch, d_model = PROGRAMS[name](sizes)
    spec = mtf.TensorSpec([batch, d_model])
    return mtf.function(step, mtf.SpmdMeshImpl(mesh_shape, "batch:all"), inputs={"x": spec}), spec


def run(step: mtf.Function, spec: mtf.TensorSpec, steps: int) -> None:
    x = tf.zeros(spec.shape.to_integer_list)
    for _ in range(steps):
        float(step(x=x))


def measure(name: str, mesh_shape: str) -> dict[str, float]:
    """The measured and predicted bytes of all cores together."""
    run(*built(name, SMALL, mesh_shape), STEPS)
    step, spec = built(name, LARGE, mesh_shape)
    predicted = step.report().memory
    measured = high_water(step, lambda: run(step, spec, 1))
    cores = mtf.convert_to_shape(mesh_shape).size
    return {"measured": measured, "predicted": cores * predicted.peak}


def high_water(step: mtf.Function, call: Callable[[], object]) -> int:
    """The peak bytes of the process while it runs some steps, above its memory before their variables were made."""
    before = _settled()
    step.initialize()
    with_variables = _settled()
    return with_variables - before + rise(call)


def rise(call: Callable[[], object]) -> int:
    """The peak bytes of the process while it runs some steps, above its memory before them."""
    before = _settled()
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    for _ in range(STEPS):
        call()
    return _status("VmHWM") - before


def _settled() -> int:
    """The resident bytes, after unused memory was returned to the system."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return _status("VmRSS")


def _status(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def is_within_limits(measured: float, predicted: float, cores: int) -> bool:
    """Whether measured memory is within the limits. Both numbers are bytes of all cores together."""
    if cores == 1:
        return abs(measured - predicted) <= ONE_CORE_LIMIT * predicted
    return measured <= predicted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(PROGRAMS), help="programs")
    parser.add_argument("--meshes", nargs="*", default=MESHES)
    parser.add_argument("--pool", action="store_true", help="leave TensorFlow its memory pool")
    parser.add_argument("--measure", nargs=2, metavar=("PROGRAM", "MESH"), help="once, in this process")
    arguments = parser.parse_args()
    if arguments.measure:
        mtf.virtual_cpus(8)
        print(json.dumps(measure(*arguments.measure)))
        return
    print(machine())
    print(f"{'program':28} {'mesh':8} {'measured MiB':>12} {'predicted MiB':>13} {'measured / predicted':>20}")
    environment = os.environ if arguments.pool else {**os.environ, **GIVES_BACK}
    for name in arguments.only:
        for mesh_shape in arguments.meshes:
            found = [_in_a_process(name, mesh_shape, environment) for _ in range(arguments.repeats)]
            measured = statistics.median(f["measured"] for f in found)
            _print_row(name, mesh_shape, measured, found[0]["predicted"])


def _print_row(name: str, mesh_shape: str, measured: float, predicted: float) -> None:
    is_within = is_within_limits(measured, predicted, mtf.convert_to_shape(mesh_shape).size)
    numbers = f"{measured / MEBIBYTE:12.1f} {predicted / MEBIBYTE:13.1f} {measured / predicted:20.2f}"
    verdict = "within the limit" if is_within else "OVER THE LIMIT"
    print(f"{name:28} {mesh_shape:8} {numbers}  {verdict}", flush=True)


def _in_a_process(name: str, mesh_shape: str, environment: Mapping[str, str]) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.memory", "--measure", name, mesh_shape]
    output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    return json.loads(output.splitlines()[-1])


if __name__ == "__main__":
    main()
