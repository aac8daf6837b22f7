"""Cases of products of rows in groups."""

from __future__ import annotations

import tensorflow as tf

import meshtf as mtf
from tests.properties.random_programs.builder import Builder, RejectedError
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.program import spread, summed


def grouped_matmul(b: Builder) -> None:
    """Rows and groups of the program's dimensions; sometimes batches share matrices, and sometimes each has its own."""
    x = b.pick(b.dtype if b.chance(0.9) else b.integer(), least=2, low=-2, high=2)
    dims = list(x.shape)
    b.rng.shuffle(dims)
    rows, contracted, *batch = dims
    groups, new = b.new_dim(b.rng.choice([1, 2, 3, 4])), b.new_dim()
    of_w = [groups, contracted, new, *(d for d in batch if b.chance(0.3))]
    b.rng.shuffle(of_w)
    if mtf.Shape([*x.shape, groups, new]).size > 20_000 or mtf.Shape(of_w).size > 1500:
        raise RejectedError
    w = b.fresh(mtf.Shape(of_w), x.tensor.dtype, -2, 2)
    counted = b.new_dim(groups.size) if b.chance(0.5) else groups
    sizes = b.fresh(mtf.Shape([*batch, counted]), b.integer(), -1, rows.size)
    z = mtf.grouped_matmul(x.tensor, w.tensor, sizes.tensor, rows, groups)
    everything = mtf.Shape([*x.shape, groups, new])

    def reference(p: tf.Tensor, q: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        ends = tf.minimum(tf.cumsum(tf.maximum(tf.cast(n, tf.int64), 0), -1), rows.size)
        own = mtf.Shape([*batch, groups])
        number = spread(tf.range(rows.size, dtype=tf.int64), [rows.name], everything)
        starts = tf.concat([tf.zeros_like(ends[..., :1]), ends[..., :-1]], -1)
        first, end = (spread(each, own.dimension_names, everything) for each in (starts, ends))
        is_own = tf.cast(tf.logical_and(number >= first, number < end), p.dtype)
        factors = spread(p, x.names, everything) * spread(q, w.names, everything) * is_own
        return summed(factors, everything, z.shape)

    b.step(f"grouped_matmul[{rows.name} {groups.name}]", [x, w, sizes], z, reference)


CASES: dict[str, Case] = {"grouped_matmul": grouped_matmul}
