"""Cases of operations on sequences: running sums, shifts, order, slices and updates at computed places."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

import meshtf as mtf
from tests.properties.random_programs.builder import Builder, RejectedError
from tests.properties.random_programs.cases.contraction import is_clear_of_ties
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.program import Node, spread


def at_end(function: Callable[[tf.Tensor], tf.Tensor], at: int) -> Callable[[tf.Tensor], tf.Tensor]:
    """A function along the last dimension, applied along another."""

    def applied(p: tf.Tensor) -> tf.Tensor:
        order = [i for i in range(p.shape.rank) if i != at] + [at]
        y = function(tf.transpose(p, order))
        return tf.transpose(y, np.argsort(order)) if y.shape.rank == p.shape.rank else y

    return applied


def chosen(p: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
    """Along the last dimension, the elements at indices; gradients go to them."""
    number = p.dtype if p.dtype.is_complex else tf.float64
    one_hot = tf.one_hot(index, p.shape[-1], dtype=number)
    values = tf.reduce_sum(one_hot * tf.cast(p, number)[..., None, :], -1)
    return tf.cast(values, p.dtype)


def along_one(b: Builder, is_ordered: bool = False) -> tuple[Node, int, str]:
    x = b.pick(b.dtype if b.chance(0.85) else b.integer(), least=1, low=-3, high=3)
    at = b.rng.randrange(x.shape.ndims)
    if is_ordered and not (x.shape[at].size and is_clear_of_ties_anywhere(x, at)):
        raise RejectedError
    return x, at, x.names[at]


def is_clear_of_ties_anywhere(x: Node, at: int) -> bool:
    """Whether no two elements along a dimension are so near that rounding could change their order."""
    if x.is_exact or x.tensor.dtype.is_complex or not x.shape.size:
        return True
    gaps = np.diff(np.sort(x.array, at), axis=at)
    return bool(np.all(gaps > 1e-3)) and is_clear_of_ties(x, [x.names[at]])


def cumsum(b: Builder) -> None:
    x, at, name = along_one(b)
    exclusive, reverse = b.chance(0.4), b.chance(0.4)
    z = mtf.cumsum(x.tensor, name, exclusive, reverse)
    b.step(f"cumsum[{name}, {exclusive}, {reverse}]", [x], z, lambda p: tf.cumsum(p, at, exclusive, reverse))


def cummax(b: Builder) -> None:
    x, at, name = along_one(b, is_ordered=True)
    reverse = b.chance(0.4)
    z = mtf.cummax(x.tensor, name, reverse)

    def along_last(p: tf.Tensor) -> tf.Tensor:
        p = p[..., ::-1] if reverse else p
        n = p.shape[-1]
        reached = np.tril(np.ones([n, n], bool))
        lowest = tf.constant(-(10**6), p.dtype)
        y = chosen(p, tf.argmax(tf.where(reached, p[..., None, :], lowest), -1))
        return y[..., ::-1] if reverse else y

    b.step(f"cummax[{name}, {reverse}]", [x], z, at_end(along_last, at), is_exact=True)


def reverse(b: Builder) -> None:
    x, at, name = along_one(b)
    b.step(f"reverse[{name}]", [x], mtf.reverse(x.tensor, name), lambda p: tf.reverse(p, [at]), is_exact=True)


def roll(b: Builder) -> None:
    x, at, name = along_one(b)
    offset = b.rng.randint(-2 * x.shape[at].size, 2 * x.shape[at].size)
    z = mtf.roll(x.tensor, offset, name)
    b.step(f"roll[{name}, {offset}]", [x], z, lambda p: tf.roll(p, offset, at), is_exact=True)


def _moved(p: tf.Tensor, offset: int, at: int, wrap: bool) -> tf.Tensor:
    if wrap:
        return tf.roll(p, offset, at)
    n = p.shape[at]
    ends = [max(offset, 0), max(-offset, 0)]
    wide = tf.pad(p, [ends if i == at else [0, 0] for i in range(p.shape.rank)])
    begin = [max(-offset, 0) if i == at else 0 for i in range(p.shape.rank)]
    return tf.slice(wide, begin, [n if i == at else s for i, s in enumerate(p.shape)])


def shift(b: Builder) -> None:
    x, at, name = along_one(b)
    offset, wrap = b.rng.randint(-x.shape[at].size - 1, x.shape[at].size + 1), b.chance(0.5)
    z = mtf.shift(x.tensor, offset, name, wrap)
    b.step(f"shift[{name}, {offset}, {wrap}]", [x], z, lambda p: _moved(p, offset, at, wrap), is_exact=True)


def dynamic_shift(b: Builder) -> None:
    x, at, name = along_one(b)
    offset = b.fresh(mtf.Shape([]), tf.int32, -x.shape[at].size - 1, x.shape[at].size + 1)
    wrap = b.chance(0.5)
    z = mtf.dynamic_shift(x.tensor, offset.tensor, name, wrap)
    known = int(offset.array)
    b.step(
        f"dynamic_shift[{name}, {wrap}]", [x, offset], z, lambda p, q: _moved(p, known, at, wrap), is_exact=True
    )  # fmt: skip


def dynamic_shift_of_rows(b: Builder) -> None:
    """By offsets that differ along other dimensions."""
    x, at, name = along_one(b)
    size, wrap = x.shape[at].size, b.chance(0.5)
    kept = mtf.Shape([d for d in x.shape if d.name != name and b.chance(0.6)])
    offset = b.fresh(kept, tf.int32, -size - 1, size + 1)
    z = mtf.dynamic_shift(x.tensor, offset.tensor, name, wrap)
    places = spread(offset.value, offset.names, mtf.Shape([d for d in x.shape if d.name != name])).numpy()
    source = np.arange(size) - np.expand_dims(places, -1)
    if wrap:
        source = source % max(size, 1)

    def along_last(p: tf.Tensor) -> tf.Tensor:
        return chosen(p, source)

    text = f"dynamic_shift[{name}, offsets {kept}, {wrap}]"
    b.step(text, [x, offset], z, lambda p, q: at_end(along_last, at)(p), is_exact=True)


def halo_exchange(is_left: bool) -> Case:
    def case(b: Builder) -> None:
        x = b.pick(least=2)
        blocks, inner = b.rng.sample(range(x.shape.ndims), 2)
        if not x.shape[inner].size:
            raise RejectedError
        halo, wrap = b.rng.randrange(x.shape[inner].size * 2), b.chance(0.5)
        function = mtf.left_halo_exchange if is_left else mtf.halo_exchange
        z = function(x.tensor, x.names[blocks], x.names[inner], halo, wrap)
        n, size = x.shape[blocks].size, x.shape[inner].size
        if z.size > 1500:
            raise RejectedError

        def reference(p: tf.Tensor) -> tf.Tensor:
            order = [i for i in range(p.shape.rank) if i not in (blocks, inner)] + [blocks, inner]
            line = tf.transpose(p, order)
            lead = line.shape[:-2].as_list()
            line = tf.reshape(line, [*lead, n * size])
            where = np.arange(n)[:, None] * size + np.arange(-halo, size + (0 if is_left else halo))
            taken = tf.one_hot(where % (n * size) if wrap else where, n * size, dtype=p.dtype)
            return tf.transpose(tf.einsum("...s,bks->...bk", line, taken), np.argsort(order))

        b.step(f"{function.__name__}[{x.names[blocks]}, {x.names[inner]}, {halo}, {wrap}]", [x], z, reference)

    return case


def sort(b: Builder) -> None:
    x, at, name = along_one(b, is_ordered=True)
    direction = b.rng.choice(["ASCENDING", "DESCENDING"])
    z = mtf.sort(x.tensor, name, direction)

    def along_last(p: tf.Tensor) -> tf.Tensor:
        return chosen(p, tf.argsort(p, direction=direction, stable=True))

    b.step(f"sort[{name}, {direction}]", [x], z, at_end(along_last, at), is_exact=True)


def argsort(b: Builder) -> None:
    x, at, name = along_one(b, is_ordered=True)
    direction = b.rng.choice(["ASCENDING", "DESCENDING"])
    z = mtf.argsort(x.tensor, name, direction)

    def reference(p: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.argsort(p, at, direction, stable=True), tf.int64)

    b.step(f"argsort[{name}, {direction}]", [x], z, reference)


def top_k(b: Builder) -> None:
    x, at, name = along_one(b, is_ordered=True)
    k = b.new_dim(b.rng.randint(1, x.shape[at].size))
    z = mtf.top_k(x.tensor, name, k)

    def reference(p: tf.Tensor) -> list[tf.Tensor]:
        order = [i for i in range(p.shape.rank) if i != at] + [at]
        p = tf.transpose(p, order)
        index = tf.argsort(p, direction="DESCENDING", stable=True)[..., : k.size]
        return [chosen(p, index), tf.cast(index, tf.int64)]

    b.step(f"top_k[{name}, {k}]", [x], z, reference, is_exact=True)


def nth(name: str) -> Case:
    def case(b: Builder) -> None:
        x, at, dim = along_one(b, is_ordered=True)
        n = b.rng.randrange(x.shape[at].size)
        z = getattr(mtf, name)(x.tensor, n, dim)
        direction = "DESCENDING" if name == "nth_largest_element" else "ASCENDING"

        def along_last(p: tf.Tensor) -> tf.Tensor:
            return chosen(p, tf.argsort(p, direction=direction, stable=True)[..., n : n + 1])[..., 0]

        b.step(f"{name}[{dim}, {n}]", [x], z, at_end(along_last, at), is_exact=True)

    return case


def _begin(b: Builder, size: int, count: int) -> tuple[Node, int]:
    """An index, which may lead out of the dimension, and the one that it is brought to."""
    begin = b.fresh(mtf.Shape([]), b.integer(), -2, size + 1)
    return begin, int(np.clip(begin.array, 0, size - count))


def dynamic_slice(b: Builder) -> None:
    x, at, name = along_one(b)
    if not x.shape[at].size:
        raise RejectedError
    count = b.rng.randint(1, x.shape[at].size)
    begin, known = _begin(b, x.shape[at].size, count)
    z = mtf.dynamic_slice(x.tensor, begin.tensor, count, name)
    where = tuple(slice(known, known + count) if i == at else slice(None) for i in range(x.shape.ndims))
    b.step(f"dynamic_slice[{name}, {count}]", [x, begin], z, lambda p, q: p[where], is_exact=True)


def dynamic_update_slice(b: Builder) -> None:
    x, at, name = along_one(b)
    if not x.shape[at].size:
        raise RejectedError
    size, count = x.shape[at].size, b.rng.randint(1, x.shape[at].size)
    update = b.fresh(x.shape.resize_dimension(name, count), x.tensor.dtype)
    begin, known = _begin(b, size, count)
    z = mtf.dynamic_update_slice(x.tensor, update.tensor, begin.tensor, name)

    def reference(p: tf.Tensor, u: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        before, _, after = tf.split(p, [known, count, size - known - count], at)
        return tf.concat([before, u, after], at)

    b.step(f"dynamic_update_slice[{name}, {count}]", [x, update, begin], z, reference, is_exact=True)


def complex_(b: Builder) -> None:
    """Parts, conjugate, angle and a product, back in real numbers."""
    if b.dtype.size == 2:
        raise RejectedError
    x, y = b.fresh(b.shape(), b.dtype, 0.3, 2), b.pick(low=0.3, high=2)
    shape = b.union([x.shape, y.shape])
    if shape.size > 1500:
        raise RejectedError
    z = mtf.complex(x.tensor, y.tensor)
    outputs = [mtf.real(mtf.conj(z) * z), mtf.imag(z * z), mtf.angle(z)]

    def reference(p: tf.Tensor, q: tf.Tensor) -> list[tf.Tensor]:
        p, q = spread(p, x.names, z.shape), spread(q, y.names, z.shape)
        return [p * p + q * q, 2 * p * q, tf.math.atan2(q, p)]

    b.step("complex[real(conj(z) * z), imag(z * z), angle(z)]", [x, y], outputs, reference)


CASES: dict[str, Case] = {
    "cumsum": cumsum,
    "cummax": cummax,
    "reverse": reverse,
    "roll": roll,
    "shift": shift,
    "dynamic_shift": dynamic_shift,
    "dynamic_shift of rows": dynamic_shift_of_rows,
    "halo_exchange": halo_exchange(is_left=False),
    "left_halo_exchange": halo_exchange(is_left=True),
    "sort": sort,
    "argsort": argsort,
    "top_k": top_k,
    "nth_largest_element": nth("nth_largest_element"),
    "nth_smallest_element": nth("nth_smallest_element"),
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "complex real imag conj angle": complex_,
}
