"""Cases of patterns over dimensions, of copies and differences along one, and of triangles."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

import meshtf as mtf
from tests.properties.random_programs.builder import MOST_DIMENSIONS, Builder, RejectedError
from tests.properties.random_programs.cases.contraction import REDUCTIONS
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.cases.neighbours import is_clear_of_ties
from tests.properties.random_programs.cases.sequence import along_one
from tests.properties.random_programs.cases.sources import source
from tests.properties.random_programs.program import Node, reduce_over, spread


def _divisor(b: Builder, size: int) -> int:
    return b.rng.choice([n for n in range(1, size + 1) if size % n == 0])


def _split(b: Builder, x: Node) -> tuple[list[str], list[mtf.Dimension]]:
    """The left side of a pattern, some dimensions split in two, and the dimensions that it leaves."""
    words, dims = [], []
    for dim in x.shape:
        if dim.size and b.chance(0.5) and len(dims) + x.shape.ndims < MOST_DIMENSIONS - 1:
            inner = _divisor(b, dim.size)
            pair = [b.new_dim(dim.size // inner), b.new_dim(inner)]
            words.append(f"({pair[0].name} {pair[1].name}:{inner})")
            dims += pair
        else:
            words.append(dim.name)
            dims.append(dim)
    return words, dims


def rearrange(b: Builder) -> None:
    """Splits some dimensions, orders all anew, merges two, and repeats along a new one."""
    x = b.pick(least=1)
    words, dims = _split(b, x)
    before = mtf.Shape(dims)
    if b.chance(0.4):
        dims.append(b.new_dim(2))
    b.rng.shuffle(dims)
    middle = mtf.Shape(dims)
    right, sizes = [d.name if before.has(d.name) else str(d) for d in dims], middle.to_integer_list
    if len(dims) > 1 and b.chance(0.6):
        at = b.rng.randrange(len(dims) - 1)
        right[at : at + 2] = [f"({b.new_dim(1).name}: {' '.join(right[at : at + 2])})"]
        sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
    if middle.size > 1500:
        raise RejectedError
    pattern = f"{' '.join(words)} -> {' '.join(right)}"

    def reference(p: tf.Tensor) -> tf.Tensor:
        p = tf.reshape(p, before.to_integer_list)
        return tf.reshape(spread(p, before.dimension_names, middle), sizes)

    b.step(f"rearrange[{pattern}]", [x], mtf.rearrange(x.tensor, pattern), reference, is_exact=True)


def reduce(b: Builder) -> None:
    """Over whole dimensions, and over the factors of others."""
    name = b.rng.choice(["sum", "mean", "max", "min", "prod", "any", "all"])
    x = b.pick(tf.bool if name in ("any", "all") else b.dtype, least=1, low=-2, high=2)
    words, dims = _split(b, x)
    before = mtf.Shape(dims)
    kept = [d for d in dims if b.chance(0.6)]
    b.rng.shuffle(kept)
    lost = [d.name for d in dims if d not in kept]
    if not before.size or math.prod(d.size for d in dims if d not in kept) > 64:
        raise RejectedError
    if name in ("max", "min") and not (x.is_exact or is_clear_of_ties(x)):
        raise RejectedError
    pattern = f"{' '.join(words)} -> {' '.join(d.name for d in kept)}"
    axes = [i for i, d in enumerate(dims) if d.name in lost]
    left = [d.name for d in dims if d.name not in lost]

    def reference(p: tf.Tensor) -> tf.Tensor:
        p = tf.reshape(p, before.to_integer_list)
        return spread(reduce_over(REDUCTIONS[f"reduce_{name}"], p, axes), left, mtf.Shape(kept))

    is_exact = name not in ("sum", "mean", "prod")
    b.step(f"reduce[{pattern}, {name}]", [x], mtf.reduce(x.tensor, pattern, name), reference, is_exact=is_exact)


def copies(b: Builder) -> None:
    x, at, name = along_one(b)
    times, size = b.rng.randint(1, 3), x.shape[at].size
    sizes = x.shape.to_integer_list
    grown = [n * times if i == at else n for i, n in enumerate(sizes)]
    if x.shape.size * times > 1500:
        raise RejectedError
    z = [mtf.repeat(x.tensor, times, name), mtf.tile(x.tensor, times, name)]

    def reference(p: tf.Tensor) -> list[tf.Tensor]:
        line = tf.reshape(p, [math.prod(sizes[:at]), size, math.prod(sizes[at + 1 :])])
        return [tf.reshape(tf.stack([line] * times, axis), grown) for axis in (2, 1)]

    b.step(f"repeat tile[{name}, {times}]", [x], z, reference, is_exact=True)


def diff(b: Builder) -> None:
    x, at, name = along_one(b)
    size = x.shape[at].size
    if size < 2:
        raise RejectedError
    times = b.rng.randint(1, min(3, size - 1))

    def reference(p: tf.Tensor) -> tf.Tensor:
        for n in range(size - 1, size - 1 - times, -1):
            p = tf.split(p, [1, n], at)[1] - tf.split(p, [n, 1], at)[0]
        return p

    b.step(f"diff[{name}, {times}]", [x], mtf.diff(x.tensor, name, times), reference)


def triangles(b: Builder) -> None:
    x = b.pick(b.rng.choice([b.dtype, b.integer()]), least=2)
    row, column = b.rng.sample(range(x.shape.ndims), 2)
    k = b.rng.randint(-3, 3)
    z = [f(x.tensor, x.names[row], x.names[column], k) for f in (mtf.tril, mtf.triu)]
    places = np.indices(x.shape.to_integer_list)
    below, above = places[column] <= places[row] + k, places[column] >= places[row] + k

    def reference(p: tf.Tensor) -> list[tf.Tensor]:
        return [tf.where(kept, p, tf.zeros([], p.dtype)) for kept in (below, above)]

    b.step(f"tril triu[{x.names[row]}, {x.names[column]}, {k}]", [x], z, reference, is_exact=True)


def eye(b: Builder) -> None:
    rows, columns = b.rng.sample(b.dims, 2)
    dtype = b.rng.choice([b.dtype, tf.int32])
    if rows.size * columns.size > 1500:
        raise RejectedError
    array = np.eye(rows.size, columns.size).astype(dtype.as_numpy_dtype)
    source(b, f"eye[{rows}, {columns}]", mtf.eye(b.mesh, rows, columns, dtype), array)


def linspace(b: Builder) -> None:
    dim = b.rng.choice(b.dims)
    if dim.size > 40 or b.dtype.is_complex:
        raise RejectedError
    array = np.linspace(-1.5, 2, dim.size)
    source(b, f"linspace[{dim}]", mtf.linspace(b.mesh, -1.5, 2, dim, b.dtype), array, is_exact=False)


CASES: dict[str, Case] = {
    "rearrange": rearrange,
    "reduce": reduce,
    "repeat tile": copies,
    "diff": diff,
    "tril triu": triangles,
    "eye": eye,
    "linspace": linspace,
}
