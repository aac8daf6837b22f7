"""Cases of concatenation and slicing, of indices, and of order and softmax along a dimension."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

import meshtf as mtf
from tests.properties.random_programs.builder import Builder, RejectedError, wide_dtype
from tests.properties.random_programs.cases.contraction import is_clear_of_ties
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.program import Node, spread, summed


def _resized(b: Builder, shape: mtf.Shape, at: int) -> mtf.Shape:
    """A shape that differs in the size of one dimension, not by a factor that a mesh would need."""
    return mtf.Shape([mtf.Dimension(d.name, b.size()) if i == at else d for i, d in enumerate(shape)])


def concat(b: Builder) -> None:
    x = b.pick(least=1)
    at = b.rng.randrange(x.shape.ndims)
    others = [b.fresh(_resized(b, x.shape, at), x.tensor.dtype) for _ in range(b.rng.randrange(1, 3))]
    inputs = [x, *others]
    b.rng.shuffle(inputs)
    z = mtf.concat([n.tensor for n in inputs], x.names[at])
    b.step(f"concat[{x.names[at]}]", inputs, z, lambda *p: tf.concat(p, at), is_exact=True)


def concat_transposed(b: Builder) -> None:
    """An operand whose dimensions stand in another order."""
    x = b.pick(least=2)
    dims = list(x.shape)
    b.rng.shuffle(dims)
    other = b.fresh(mtf.Shape(dims), x.tensor.dtype)
    z = mtf.concat([x.tensor, other.tensor], x.shape[0])

    def reference(p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        return tf.concat([p, spread(q, other.names, x.shape)], 0)

    b.step(f"concat[{x.names[0]}]", [x, other], z, reference, is_exact=True)


def split(b: Builder) -> None:
    x = b.pick(least=1)
    at = b.rng.randrange(x.shape.ndims)
    size = x.shape[at].size
    if size <= 1:
        raise RejectedError
    divisors = [n for n in range(2, min(size, 6) + 1) if size % n == 0]
    first = b.rng.randrange(1, size)
    how = b.rng.choice(divisors) if divisors and b.chance(0.5) else [first, size - first]
    z = mtf.split(x.tensor, x.shape[at], how)
    b.step(f"split[{x.names[at]}, {how}]", [x], z, lambda p: tf.split(p, how, at), is_exact=True)


def stack(b: Builder) -> None:
    x = b.pick()
    count = b.rng.choice([2, *(a.size for a in b.mesh_shape if a.size <= 4)])
    others = [b.fresh(x.shape, x.tensor.dtype) for _ in range(count - 1)]
    at = b.rng.randrange(x.shape.ndims + 1)
    if x.tensor.size * count > 1500:
        raise RejectedError
    dim = b.new_dim(count)
    z = mtf.stack([x.tensor, *(o.tensor for o in others)], dim.name, at)
    b.step(f"stack[{dim}]", [x, *others], z, lambda *p: tf.stack(p, at), is_exact=True)


def unstack(b: Builder) -> None:
    x = b.pick(least=1, accepts=lambda n: min(d.size for d in n.shape) <= 8)
    if min(d.size for d in x.shape) > 8:
        x = b.fresh(mtf.Shape([b.new_dim(b.rng.choice([2, 4, 6])), x.shape[0]]), b.dtype)
    at = b.rng.choice([i for i, d in enumerate(x.shape) if d.size <= 8])
    z = mtf.unstack(x.tensor, x.shape[at])
    b.step(f"unstack[{x.names[at]}]", [x], z, lambda p: tf.unstack(p, axis=at), is_exact=True)


def slice_(b: Builder) -> None:
    x = b.pick(least=1)
    at = b.rng.randrange(x.shape.ndims)
    if not x.shape[at].size:
        raise RejectedError
    begin = b.rng.randrange(x.shape[at].size)
    count = b.rng.randint(1, x.shape[at].size - begin)
    z = mtf.slice(x.tensor, begin, count, x.names[at])
    where = tuple(slice(begin, begin + count) if i == at else slice(None) for i in range(x.shape.ndims))
    b.step(f"slice[{x.names[at]}, {begin}, {count}]", [x], z, lambda p: p[where], is_exact=True)


def pad(b: Builder) -> None:
    x = b.pick(least=1)
    at = b.rng.randrange(x.shape.ndims)
    ends = [b.rng.randrange(6), b.rng.randrange(6)]
    if b.chance(0.4):  # to a size that splits
        ends[1] += -(x.shape[at].size + sum(ends)) % b.mesh_shape.size
    value = b.rng.choice([0, 0.5])
    z = mtf.pad(x.tensor, ends, x.names[at], pad_value=value)
    paddings = [ends if i == at else [0, 0] for i in range(x.shape.ndims)]

    def reference(p: tf.Tensor) -> tf.Tensor:
        return tf.pad(p, paddings, constant_values=value)

    b.step(f"pad[{x.names[at]}, {ends}, {value}]", [x], z, reference, is_exact=True)


def one_hot(b: Builder) -> None:
    dim = b.rng.choice(b.dims)
    indices = b.indices(dim.size)
    if indices.shape.has(dim.name) or indices.tensor.size * dim.size > 1500:
        raise RejectedError
    on, off = b.rng.choice([(1.0, 0.0), (2.5, -1.0)])
    z = mtf.one_hot(indices.tensor, dim, on, off, b.dtype)

    def reference(p: tf.Tensor) -> tf.Tensor:
        return tf.one_hot(p, dim.size, on, off, dtype=wide_dtype(b.dtype))

    b.step(f"one_hot[{dim}, {on}, {off}]", [indices], z, reference, is_exact=True)


def _gathered(weights: Node, indices: Node, dim: mtf.Dimension, shape: mtf.Shape) -> Callable[..., tf.Tensor]:
    """By a one-hot product; what is out of range gives zeros."""
    everything = mtf.Shape([*shape, dim])

    def reference(w: tf.Tensor, p: tf.Tensor) -> tf.Tensor:
        number = w.dtype if w.dtype.is_complex else tf.float64
        chosen = spread(tf.one_hot(p, dim.size, dtype=number), [*indices.names, dim.name], everything)
        values = spread(tf.cast(w, number), weights.names, everything)
        return tf.cast(summed(chosen * values, everything, shape), w.dtype)

    return reference


def gather(b: Builder) -> None:
    weights = b.pick(b.dtype if b.chance(0.85) else b.integer(), least=1)
    dim = b.rng.choice(weights.shape.dims)
    indices = b.indices(dim.size)
    b.union([weights.shape, indices.shape])
    if indices.shape.has(dim.name):
        raise RejectedError
    z = mtf.gather(weights.tensor, indices.tensor, dim)
    if b.chance(0.3):
        dims = list(z.shape)
        b.rng.shuffle(dims)
        z = mtf.gather(weights.tensor, indices.tensor, dim, mtf.Shape(dims))
    if z.size * dim.size > 20_000:
        raise RejectedError
    reference = _gathered(weights, indices, dim, z.shape)
    b.step(f"gather[{dim.name} to {z.shape}]", [weights, indices], z, reference, is_exact=True)


def embedding_lookup(b: Builder) -> None:
    table = b.pick(b.dtype if b.chance(0.85) else b.integer(), least=1)
    dim = b.rng.choice(table.shape.dims)
    ids = b.indices(dim.size)
    if any(table.shape.has(d) for d in ids.shape):
        raise RejectedError
    # With so much room no batch is too uneven.
    z = mtf.embedding_lookup(table.tensor, ids.tensor, dim, b.rng.choice([None, 1e6]))
    if z.size * dim.size > 20_000:
        raise RejectedError
    reference = _gathered(table, ids, dim, z.shape)
    b.step(f"embedding_lookup[{dim.name}]", [table, ids], z, reference, is_exact=True)


def gather_one(b: Builder) -> None:
    x = b.pick(least=1)
    at = b.rng.randrange(x.shape.ndims)
    if not x.shape[at].size:
        raise RejectedError
    index = b.rng.randrange(x.shape[at].size)
    z = mtf.gather(x.tensor, index, x.shape[at])
    b.step(f"gather[{x.names[at]}, {index}]", [x], z, lambda p: tf.unstack(p, axis=at)[index], is_exact=True)


def _ordered(b: Builder) -> tuple[Node, int]:
    x = b.pick(b.dtype if b.chance(0.85) else b.integer(), least=1, low=-3, high=3)
    at = b.rng.randrange(x.shape.ndims)
    if not is_clear_of_ties(x, [x.names[at]]):
        raise RejectedError
    return x, at


def argmax(b: Builder) -> None:
    x, at = _ordered(b)
    z = mtf.argmax(x.tensor, x.shape[at])
    b.step(f"argmax[{x.names[at]}]", [x], z, lambda p: tf.argmax(p, at))


def top_1(b: Builder) -> None:
    """The gradient goes to the first of equal elements."""
    x, at = _ordered(b)
    size = x.shape[at].size
    z = mtf.top_1(x.tensor, x.shape[at])

    def reference(p: tf.Tensor) -> list[tf.Tensor]:
        index = tf.argmax(p, at)
        chosen = tf.one_hot(index, size, axis=at, dtype=p.dtype)
        return [tf.reduce_sum(p * chosen, at), index]

    b.step(f"top_1[{x.names[at]}]", [x], z, reference, is_exact=True)


_SOFTMAX: dict[str, Callable[..., tf.Tensor]] = {
    "softmax": tf.nn.softmax,
    "log_softmax": tf.nn.log_softmax,
    "reduce_logsumexp": tf.reduce_logsumexp,
}


def along(name: str) -> Case:
    def case(b: Builder) -> None:
        x = b.pick(least=1, low=-3, high=3)
        at = b.rng.randrange(x.shape.ndims)
        z = getattr(mtf, name)(x.tensor, b.rng.choice([x.shape[at], x.names[at]]))
        b.step(f"{name}[{x.names[at]}]", [x], z, lambda p: _SOFTMAX[name](p, at))

    return case


def _with_extra(name: str, p: tf.Tensor, q: tf.Tensor, at: int) -> tf.Tensor:
    """`q` has size 1 at `at`, and for the rest the dimensions of `p`."""
    total = tf.math.log(tf.reduce_sum(tf.exp(p), at, keepdims=True) + tf.exp(q))
    if name == "reduce_logsumexp":
        return tf.squeeze(total, at)
    return tf.exp(p - total) if name == "softmax" else p - total


def with_extra_logit(name: str) -> Case:
    """One more element of every row: a number, or a tensor with some of the other dimensions."""

    def case(b: Builder) -> None:
        x = b.pick(least=1, low=-3, high=3)
        at = b.rng.randrange(x.shape.ndims)
        kept = mtf.Shape([d for i, d in enumerate(x.shape) if i != at and b.chance(0.6)])
        ones = mtf.Shape([mtf.Dimension(d.name, 1) if i == at else d for i, d in enumerate(x.shape)])
        if b.chance(0.4):
            z = getattr(mtf, name)(x.tensor, x.shape[at], extra_logit=0.5)
            half = tf.fill(ones.to_integer_list, tf.constant(0.5, tf.float64))
            b.step(f"{name}[{x.names[at]}, extra 0.5]", [x], z, lambda p: _with_extra(name, p, half, at))
            return
        extra = b.fresh(kept, b.dtype)
        z = getattr(mtf, name)(x.tensor, x.shape[at], extra_logit=extra.tensor)
        b.step(
            f"{name}[{x.names[at]}, extra]", [x, extra], z,
            lambda p, q: _with_extra(name, p, spread(q, extra.names, ones), at),
        )  # fmt: skip

    return case


def _runs(b: Builder) -> tuple[Node, int, int]:
    """A tensor, one of its dimensions, and a divisor of that one's size."""
    x = b.pick(least=1)
    at = b.rng.randrange(x.shape.ndims)
    size = x.shape[at].size
    if not size:
        raise RejectedError
    return x, at, b.rng.choice([n for n in range(1, size + 1) if size % n == 0])


def _cut(p: tf.Tensor, at: int, run: int) -> tf.Tensor:
    sizes = p.shape.as_list()
    return tf.reshape(p, [*sizes[:at], sizes[at] // run, run, *sizes[at + 1 :]])


def pool_tensor_1d(b: Builder) -> None:
    x, at, run = _runs(b)
    z = mtf.pool_tensor_1d(x.tensor, x.names[at], mtf.reduce_sum, run)
    b.step(f"pool_tensor_1d[{x.names[at]}, {run}]", [x], z, lambda p: tf.reduce_sum(_cut(p, at, run), at + 1))


def stride_tensor_1d(b: Builder) -> None:
    x, at, run = _runs(b)
    z = mtf.stride_tensor_1d(x.tensor, x.names[at], run)
    text = f"stride_tensor_1d[{x.names[at]}, {run}]"
    b.step(text, [x], z, lambda p: tf.unstack(_cut(p, at, run), axis=at + 1)[0], is_exact=True)


def reduce_first(b: Builder) -> None:
    x, at, _ = _runs(b)
    z = mtf.reduce_first(x.tensor, x.names[at])
    b.step(f"reduce_first[{x.names[at]}]", [x], z, lambda p: tf.unstack(p, axis=at)[0], is_exact=True)


CASES: dict[str, Case] = {
    "concat": concat,
    "concat transposed": concat_transposed,
    "split": split,
    "stack": stack,
    "unstack": unstack,
    "slice": slice_,
    "pad": pad,
    "one_hot": one_hot,
    "gather": gather,
    "gather one": gather_one,
    "embedding_lookup": embedding_lookup,
    "pool_tensor_1d": pool_tensor_1d,
    "stride_tensor_1d": stride_tensor_1d,
    "reduce_first": reduce_first,
    "argmax": argmax,
    "top_1": top_1,
    **{name: along(name) for name in _SOFTMAX},
    **{f"{name} with extra_logit": with_extra_logit(name) for name in _SOFTMAX},
}
