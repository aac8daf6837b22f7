"""Cases of updates at indices."""

from __future__ import annotations

import tensorflow as tf

import meshtf as mtf
from tests.properties.random_programs.builder import Builder, RejectedError
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.program import Node, spread, summed


def _drawn(b: Builder) -> tuple[Node, Node, Node, mtf.Dimension]:
    """What is updated, indices of which some are out of range, updates, and the dimension."""
    x = b.pick(b.dtype if b.chance(0.85) else b.integer(), least=1)
    dim = b.rng.choice(x.shape.dims)
    indices = b.indices(dim.size)
    everything = b.union([x.shape, indices.shape])
    if indices.shape.has(dim.name) or everything.size > 4000:
        raise RejectedError
    dims = [d for d in everything if d.name != dim.name]
    b.rng.shuffle(dims)
    return x, indices, b.fresh(mtf.Shape(dims), x.tensor.dtype), dim


def scatter_add(b: Builder) -> None:
    x, indices, updates, dim = _drawn(b)
    z = mtf.scatter_add(x.tensor, indices.tensor, updates.tensor, dim)
    everything = mtf.Shape([*updates.shape, dim])

    def reference(p: tf.Tensor, q: tf.Tensor, u: tf.Tensor) -> tf.Tensor:
        number = p.dtype if p.dtype.is_complex else tf.float64
        where = spread(tf.one_hot(q, dim.size, dtype=number), [*indices.names, dim.name], everything)
        added = summed(where * spread(tf.cast(u, number), updates.names, everything), everything, x.shape)
        return p + tf.cast(added, p.dtype)

    b.step(f"scatter_add[{dim.name}]", [x, indices, updates], z, reference)


def scatter_update(b: Builder) -> None:
    """One index after the other, so that the last counts."""
    x, indices, updates, dim = _drawn(b)
    z = mtf.scatter_update(x.tensor, indices.tensor, updates.tensor, dim)
    free = mtf.Shape([d for d in indices.shape if not x.shape.has(d.name)])
    batch = mtf.Shape([d for d in indices.shape if x.shape.has(d.name)])
    rest = mtf.Shape([d for d in x.shape if d.name != dim.name])

    def reference(p: tf.Tensor, q: tf.Tensor, u: tf.Tensor) -> tf.Tensor:
        numbers = tf.reshape(spread(q, indices.names, free + batch), [free.size, *batch.to_integer_list])
        values = tf.reshape(spread(u, updates.names, free + rest), [free.size, *rest.to_integer_list])
        for i in range(free.size):
            here = tf.one_hot(numbers[i], dim.size, on_value=True, off_value=False, dtype=tf.bool)
            here = spread(here, [*batch.dimension_names, dim.name], x.shape)
            p = tf.where(here, spread(values[i], rest.dimension_names, x.shape), p)
        return p

    b.step(f"scatter_update[{dim.name}]", [x, indices, updates], z, reference, is_exact=True)


CASES: dict[str, Case] = {"scatter_add": scatter_add, "scatter_update": scatter_update}
