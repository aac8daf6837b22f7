"""Cases of the ways out to TensorFlow, and of operations wanted for what they do besides computing."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import meshtf as mtf
from tests.properties.random_programs.builder import LARGEST, Builder, RejectedError
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.program import spread


def slicewise(b: Builder) -> None:
    """Softmax over one dimension that must be whole, any split of the others."""
    x = b.pick(least=2)
    if b.dtype.is_complex:  # TensorFlow's softmax is of real numbers
        raise RejectedError
    at = b.rng.randrange(x.shape.ndims)
    splittable = [d for i, d in enumerate(x.shape) if i != at and b.chance(0.8)]
    z = mtf.slicewise(lambda p: tf.nn.softmax(p, at), [x.tensor], splittable_dims=splittable)
    b.step(f"slicewise[softmax over {x.shape[at]}]", [x], z, lambda p: tf.nn.softmax(p, at))


def slicewise_of_two(b: Builder) -> None:
    """The second operand lacks a dimension that splits the first: its gradient is a sum over cores."""
    x = b.pick(least=2)
    kept = [d for d in x.shape if b.chance(0.6)]
    y = b.fresh(mtf.Shape(kept), b.dtype)

    def outputs(p: tf.Tensor, q: tf.Tensor) -> list[tf.Tensor]:
        sizes = [n if d in kept else 1 for n, d in zip(p.shape, x.shape, strict=True)]
        q = tf.reshape(q, sizes)
        return [tf.sin(p) * q, tf.cast(p, p.dtype) - q]

    z = mtf.slicewise(outputs, [x.tensor, y.tensor], [x.shape, x.shape], [b.dtype, b.dtype], splittable_dims=x.shape)
    b.step("slicewise[of two, two outputs]", [x, y], z, outputs)


def slicewise_reducing(b: Builder) -> None:
    """An output without the dimension that must be whole."""
    x = b.pick(least=1)
    at = b.rng.randrange(x.shape.ndims)
    kept = mtf.Shape([d for i, d in enumerate(x.shape) if i != at])
    z = mtf.slicewise(lambda p: tf.reduce_sum(tf.square(p), at), [x.tensor], kept, splittable_dims=kept)
    b.step(f"slicewise[sum of squares over {x.shape[at]}]", [x], z, lambda p: tf.reduce_sum(tf.square(p), at))


def nmap(b: Builder) -> None:
    """A function of one row, over all other dimensions, which come first in the result."""
    x = b.pick(least=1)
    at = b.rng.randrange(x.shape.ndims)
    z = mtf.nmap(lambda row: tf.sin(row) * tf.reduce_sum(row), x.tensor, [x.shape[at]])
    order = [*(i for i in range(x.shape.ndims) if i != at), at]

    def reference(p: tf.Tensor) -> tf.Tensor:
        return tf.transpose(tf.sin(p) * tf.reduce_sum(p, at, keepdims=True), order)

    b.step(f"nmap[of {x.shape[at]}]", [x], z, reference)


def vmap(b: Builder) -> None:
    """A function of one element, which sums all of it, over a dimension that then comes first. It may be in a loop."""
    x = b.pick(least=1)
    at = b.rng.randrange(x.shape.ndims)
    others = [i for i in range(x.shape.ndims) if i != at]

    def of_one(one: mtf.Tensor) -> mtf.Tensor:
        return mtf.sin(one) * mtf.reduce_sum(one)

    def in_a_loop(one: mtf.Tensor) -> mtf.Tensor:
        body = lambda carried, _: ([of_one(one) + 0.0 * carried[0]], [])  # noqa: E731
        return mtf.scan(body, mtf.zeros_like(one), [], ("turns", 2))[0][0]

    z = mtf.vmap(in_a_loop if b.chance(0.5) else of_one, x.shape[at])(x.tensor)

    def reference(p: tf.Tensor) -> tf.Tensor:
        return tf.transpose(tf.sin(p) * tf.reduce_sum(p, others, keepdims=True), [at, *others])

    b.step(f"vmap[over {x.shape[at]}]", [x], z, reference)


def cwise(b: Builder) -> None:
    x = b.pick()
    y = b.fresh(x.shape, b.dtype)
    z = mtf.cwise(lambda p, q: tf.tanh(p) * q, [x.tensor, y.tensor])
    b.step("cwise[tanh(p) * q]", [x, y], z, lambda p, q: tf.tanh(p) * q)


def binary_op(b: Builder) -> None:
    """Operands that broadcast by name, in any order of the result."""
    x, y = b.pick(), b.pick()
    shape = b.union([x.shape, y.shape])
    if shape.size > LARGEST:
        raise RejectedError
    dims = list(shape)
    b.rng.shuffle(dims)
    given = mtf.Shape(dims) if b.chance(0.5) else None

    def function(p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        return tf.math.squared_difference(p, tf.sin(q))

    z = mtf.binary_op_with_broadcasting(function, x.tensor, y.tensor, given)

    def reference(p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        return function(spread(p, x.names, z.shape), spread(q, y.names, z.shape))

    b.step(f"binary_op_with_broadcasting[{given}]", [x, y], z, reference)


def stop_gradient_where(b: Builder) -> None:
    x = b.pick()
    c = b.fresh(mtf.Shape([d for d in x.shape if b.chance(0.6)]), tf.bool)
    z = mtf.stop_gradient(x.tensor, where=c.tensor)

    def reference(p: tf.Tensor, stops: tf.Tensor) -> tf.Tensor:
        return tf.where(spread(stops, c.names, x.shape), tf.stop_gradient(p), p)

    b.step(f"stop_gradient[where {c.shape}]", [x, c], z, reference, is_exact=True)


def depend(b: Builder) -> None:
    x, other = b.pick(), b.pick()
    z = mtf.depend(x.tensor, [other.tensor])
    b.step("depend", [x, other], z, lambda p, q: tf.identity(p), is_exact=True)


def check_finite(b: Builder) -> None:
    x = b.pick()
    b.step("check_finite", [x], mtf.check_finite(x.tensor), tf.identity, is_exact=True)


def check_indices(b: Builder) -> None:
    dtype = b.rng.choice([tf.int32, tf.int64])
    x = b.pick(dtype, low=0, high=4, accepts=lambda x: bool(np.all((x.array >= 0) & (x.array < 5))))
    b.step("check_indices", [x], mtf.check_indices(x.tensor, 5), tf.identity, is_exact=True)


CASES: dict[str, Case] = {
    "slicewise": slicewise,
    "slicewise of two": slicewise_of_two,
    "slicewise reducing": slicewise_reducing,
    "nmap": nmap,
    "vmap": vmap,
    "cwise": cwise,
    "binary_op_with_broadcasting": binary_op,
    "stop_gradient where": stop_gradient_where,
    "depend": depend,
    "check_finite": check_finite,
    "check_indices": check_indices,
}
