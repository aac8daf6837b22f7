"""Times one program on a GPU, in a separate process: `python -m benchmarks.gpu.measure SYSTEM NAME`.

It prints JSON: the seconds of the first call, and the milliseconds of a step. As in training, the host starts a
training step before the previous steps have ended. This is measured in three rounds, and the median is reported, with
the time that the thread which starts the steps works. Another figure is the median time of steps that the host waits
for one by one. Decoding has only this one, since a user waits for each result. With `--wait` it prints `compiled` after
the first call, and measures when it receives a line.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable

import jax
import numpy as np

import meshtf as mtf
from benchmarks.gpu.jax_gpt2 import gpt2_in_jax
from benchmarks.gpu.jax_sizes import JaxSizes
from benchmarks.gpu.jax_vit import vit_in_jax
from benchmarks.gpu.steps import PROGRAMS, TINY, Gpt2, Sized, Vit
from benchmarks.gpu.this_gpu import why_no_gpu

Waits = Callable[[], object]
"""Waits for a step's result."""

Start = Callable[[], Waits]
"""Starts a step."""

COMPILED = "compiled"
"""The line to print when the program is compiled."""

_AT_ONCE = 3
"""The most training steps that are under way at once."""

_ROUNDS = 3


def in_meshtf(name: str) -> tuple[Start, float]:
    """The meshtf program of this name, ready to compile, and the seconds to make its HLO."""
    step, feeds = (PROGRAMS | TINY)[name].made(mtf.GpuMeshImpl("all:1", ""))
    began = time.perf_counter()
    step.hlo()

    def start() -> Waits:
        return step.start(**feeds)

    return start, time.perf_counter() - began


def in_jax(name: str) -> tuple[Start, float]:
    """The JAX program of this name. It is traced in its first call."""
    run = _jax_program(name)

    def start() -> Waits:
        result = run()
        return lambda: np.asarray(result)

    return start, 0.0


def in_torch(name: str, *, is_virtual: bool) -> tuple[Start, float]:
    """The PyTorch program of this name. It is compiled in its first call."""
    from benchmarks.gpu.torch_images import resnet_in_torch, vit_in_torch  # PyTorch may not be installed

    program, device = (PROGRAMS | TINY)[name], "cpu" if is_virtual else "cuda"
    if isinstance(program, Vit):
        run = vit_in_torch(vit_sizes(program), program.patch_size, *program.examples(), device)
    else:
        assert isinstance(program, Sized)
        program.set_sizes()
        run = resnet_in_torch(device)

    def start() -> Waits:
        return run().item

    return start, 0.0


def vit_sizes(program: Vit) -> JaxSizes:
    """Converts the sizes for the hand-written programs."""
    length, width = (program.side // program.patch_size) ** 2 + 1, program.d_model
    own = JaxSizes(program.batch, length, "bfloat16", program.num_classes, is_causal=False)
    return dataclasses.replace(own, layers=program.num_layers, d_model=width, heads=program.num_heads, d_ff=4 * width)


def _jax_program(name: str) -> Callable[[], object]:
    program = (PROGRAMS | TINY)[name]
    if isinstance(program, Gpt2):
        sizes = JaxSizes(program.batch, program.length, program.dtype)
        tiny = dataclasses.replace(sizes, vocab=261, layers=2, d_model=16, heads=2, d_ff=32)
        return gpt2_in_jax(tiny if name in TINY else sizes)
    if isinstance(program, Vit):
        return vit_in_jax(vit_sizes(program), program.patch_size, *program.examples())
    program.set_sizes()
    if "experts" in program.module:
        from benchmarks.workloads.in_jax.experts import in_jax as experts  # it compiles for the sizes that are set now

        return experts(1)
    if "resnet" in program.module:
        from benchmarks.workloads.in_jax.resnet import in_jax as resnet

        return resnet(1, 1)
    if "decoding" in program.module:
        from benchmarks.workloads.in_jax.decoding import jax_by_hand as decoding

        return decoding(1, 1)
    from benchmarks.workloads.in_jax.transformer import jax_partitioned as transformer

    return transformer(1, 1)


def first_call(start: Start) -> float:
    """The seconds of the first call, which compiles."""
    began = time.perf_counter()
    start()()
    return time.perf_counter() - began


def milliseconds(start: Start, steps: int, at_once: int) -> dict[str, float]:
    """The milliseconds of a step of a compiled program, by the names of `bench.Measured`."""
    for _ in range(3):
        start()()
    waited = statistics.median(_waited(start) for _ in range(steps))
    if at_once == 1:
        return {"ms": 1e3 * waited, "waited_ms": 1e3 * waited}
    following, host = zip(*(_following(start, steps, at_once) for _ in range(_ROUNDS)), strict=True)
    return {"ms": statistics.median(following), "waited_ms": 1e3 * waited, "host_ms": statistics.median(host)}


def _waited(start: Start) -> float:
    began = time.perf_counter()
    start()()
    return time.perf_counter() - began


def _following(start: Start, steps: int, at_once: int) -> tuple[float, float]:
    """The milliseconds of a step, and those in which this thread works."""
    began, worked, under_way = time.perf_counter(), time.thread_time(), list[Waits]()
    for _ in range(steps):
        under_way.append(start())
        if len(under_way) == at_once:
            under_way.pop(0)()
    for wait in under_way:
        wait()
    return 1e3 * (time.perf_counter() - began) / steps, 1e3 * (time.thread_time() - worked) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("system", choices=("meshtf", "jax", "torch"))
    parser.add_argument("name", choices=(*PROGRAMS, *TINY))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--virtual", type=int)
    parser.add_argument("--wait", action="store_true", help="for a line, before steps are measured")
    arguments = parser.parse_args()
    jax.config.update("jax_platforms", "cuda,cpu" if arguments.virtual is None else "cpu")
    if arguments.system == "meshtf" and (why := why_no_gpu(arguments.virtual)) is not None:
        parser.error(why)
    if arguments.system == "torch":
        start, traced_s = in_torch(arguments.name, is_virtual=arguments.virtual is not None)
    else:
        start, traced_s = in_meshtf(arguments.name) if arguments.system == "meshtf" else in_jax(arguments.name)
    first_s = traced_s + first_call(start)
    if arguments.wait:
        print(COMPILED, flush=True)
        input()
    at_once = 1 if "decoding" in arguments.name else _AT_ONCE
    print(json.dumps({"first_s": first_s, **milliseconds(start, arguments.steps, at_once)}))


if __name__ == "__main__":
    main()
