"""Compares a mixture of 64 experts with the dense layer of the same FLOPs, on one core with one thread.

    python -m benchmarks.mixture_of_experts

Both are sublayers of a Transformer. Each token goes to two experts. An expert has as many places as it needs at even
load. A dropless expert has as many places as it has tokens. So the matrix products are those of a dense layer with
twice an expert's d_ff. The table has the values alone, and the values with the gradients for the tokens and all
weights. The mixture has 32 times as many weights. Times are medians of steps that take turns.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import meshtf as mtf
from benchmarks.measuring.machine import machine
from meshtf.layers.attention import AttentionMask, Tokens
from meshtf.layers.moe import Capacity, GatherDispatch, MixtureOfExperts, ProductDispatch, Top2Router
from meshtf.layers.transformer import Context, FeedForward, Sublayer


@dataclasses.dataclass(frozen=True)
class Sizes:
    batch: int
    length: int
    d_model: int
    d_ff: int
    experts: int

    @property
    def x(self) -> mtf.Shape:
        return mtf.Shape([("batch", self.batch), ("length", self.length), ("d_model", self.d_model)])


def gradient_step(layer: Sublayer, *, with_gradients: bool) -> Callable[..., list[mtf.Tensor]]:
    def step(x: mtf.Tensor) -> list[mtf.Tensor]:
        y = layer(x, Context(AttentionMask(), Tokens()))
        loss = mtf.reduce_mean(mtf.square(y))
        if not with_gradients:
            return [loss]
        weights = [variable.value for variable in x.graph.trainable_variables]
        return [loss, *(mtf.reduce_max(grad) for grad in mtf.gradients([loss], [x, *weights]) if grad is not None)]

    return step


def layers(sizes: Sizes) -> dict[str, Sublayer]:
    """The sublayers by the names of their rows; the others are compared with the first."""
    router = Top2Router(second_is_random=False)

    def mixture(capacity: Capacity | None, dispatch: GatherDispatch | ProductDispatch, group_size: int) -> Sublayer:
        return MixtureOfExperts(
            sizes.experts, sizes.d_ff, router, capacity=capacity, dispatch=dispatch, group_size=group_size
        )

    tokens = sizes.batch * sizes.length
    return {
        "dense, twice the d_ff": FeedForward(2 * sizes.d_ff),
        "experts, by index": mixture(Capacity(), GatherDispatch(), tokens),
        "experts, by index, a group per row": mixture(Capacity(), GatherDispatch(), sizes.length),
        "experts, mask products": mixture(Capacity(), ProductDispatch(), sizes.length),
        "experts, dropless": mixture(None, GatherDispatch(), tokens),
    }


def times(sizes: Sizes, repeats: int, *, with_gradients: bool) -> dict[str, float]:
    """The seconds of a step, by row."""
    x = np.random.default_rng(0).normal(size=sizes.x.to_integer_list).astype(np.float32)
    mesh_impl = mtf.SpmdMeshImpl("all:1", "")
    steps = {
        name: mtf.function(
            gradient_step(layer, with_gradients=with_gradients), mesh_impl, inputs={"x": mtf.TensorSpec(sizes.x)}
        )
        for name, layer in layers(sizes).items()
    }
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(repeats + 1):
        for name, step in steps.items():
            start = time.perf_counter()
            step(x=x)
            if number:
                taken[name].append(time.perf_counter() - start)
    return {name: statistics.median(own) for name, own in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--d_model", type=int, default=256)
    parser.add_argument("--d_ff", type=int, default=1024)
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = vars(parser.parse_args())
    repeats = arguments.pop("repeats")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    sizes = Sizes(**arguments)
    print(f"{machine()}; one thread; {sizes}")
    for what, with_gradients in (("values", False), ("values and gradients", True)):
        found = times(sizes, repeats, with_gradients=with_gradients)
        dense = next(iter(found.values()))
        for name, seconds in found.items():
            print(f"{what:22}{name:38}{seconds * 1e3:10.1f} ms{seconds / dense:8.2f}", flush=True)


if __name__ == "__main__":
    main()
