"""Compares causal attention over long sequences, forward and gradient, in blocks and with a matrix of scores.

    python -m benchmarks.long_attention

It runs 4,096 positions, 8 heads of 64, one sequence and one core, with a process for each form. The table also has the
peak of memory. The target for blocks is 1.1 times the time of the plain form. If they skip the half that the mask
hides, they take 0.65 of it.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import meshtf as mtf
from benchmarks.measuring.machine import machine
from benchmarks.measuring.side_by_side import Step, as_table, side_by_side
from meshtf.layers.attention.mask import AttentionMask
from meshtf.layers.attention.pattern import AttentionPattern
from meshtf.layers.attention.tokens import Tokens

LENGTH, HEADS, D_KV = 4096, 8, 64


def attention_step(attend: Callable[..., mtf.Tensor]) -> Step:
    """The gradients of a form of attention, for queries, keys and values."""
    length, memory = mtf.Dimension("length", LENGTH), mtf.Dimension("memory_length", LENGTH)
    heads, d_kv = mtf.Dimension("heads", HEADS), mtf.Dimension("d_kv", D_KV)

    def program(q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor) -> list[mtf.Tensor]:
        pattern = AttentionPattern.within(Tokens.along(q), AttentionMask(is_causal=True))
        y = attend(q, k, v, pattern)
        loss = mtf.reduce_mean(mtf.square(y))
        return [loss, *(mtf.reduce_mean(mtf.square(grad)) for grad in mtf.gradients([loss], [q, k, v]))]

    shapes = {"q": [length, heads, d_kv], "k": [memory, heads, d_kv], "v": [memory, heads, d_kv]}
    inputs = {name: mtf.TensorSpec(dims) for name, dims in shapes.items()}
    step = mtf.function(program, mtf.SpmdMeshImpl("all:1", ""), inputs=inputs)
    generator = np.random.default_rng(0)
    arrays = {name: generator.normal(size=[d.size for d in dims]) for name, dims in shapes.items()}
    given = {name: tf.constant(array, tf.float32) for name, array in arrays.items()}
    return lambda: step(**given)[0]


PROGRAMS: dict[str, Callable[[], Step]] = {
    "plain": functools.partial(attention_step, mtf.layers.dot_product_attention),
    "in blocks of 512": functools.partial(attention_step, mtf.layers.lean_attention),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3, help="steps of each form in a round")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(machine())
    print(as_table(side_by_side("benchmarks.long_attention", list(PROGRAMS), arguments.steps, arguments.rounds)))


if __name__ == "__main__":
    main()
