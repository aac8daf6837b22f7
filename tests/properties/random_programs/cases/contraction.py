"""Cases of contractions, reductions, reshapes and layout overrides."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.layout import axes_size
from meshtf.ops.algebra.broadcasting import union
from tests.properties.random_programs.builder import MOST_DIMENSIONS, Builder, RejectedError
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.program import Node, reduce_over, spread, summed


def _product(inputs: list[Node], output: mtf.Shape) -> Callable[..., tf.Tensor]:
    everything = union([x.shape for x in inputs])

    def reference(*values: tf.Tensor) -> tf.Tensor:
        spreads = [spread(v, x.names, everything) for v, x in zip(values, inputs, strict=True)]
        return summed(functools.reduce(tf.multiply, spreads), everything, output)

    return reference


def _some(b: Builder, shape: mtf.Shape) -> mtf.Shape:
    dims = [d for d in shape if b.chance(0.5)]
    b.rng.shuffle(dims)
    return mtf.Shape(dims)


def einsum(count: int) -> Case:
    def case(b: Builder) -> None:
        dtype = b.dtype if b.chance(0.9) else b.integer()
        inputs = [b.pick(dtype, low=-2, high=2) for _ in range(count)]
        everything = b.union([x.shape for x in inputs])
        if everything.size > 20_000 or everything.ndims > MOST_DIMENSIONS:
            raise RejectedError
        output = _some(b, everything)
        tensors = [x.tensor for x in inputs]
        kind = b.rng.randrange(4)
        if kind == 0:
            new = [d for d in b.dims[:2] if not everything.has(d.name)]
            output = mtf.Shape([*new, *output])
            z = mtf.einsum(tensors, output_shape=output)
        elif kind == 1:
            reduced = [d for d in everything if not output.has(d.name)]
            z = mtf.einsum(tensors, reduced_dims=reduced)
        elif kind == 2 and count == 2:
            z = mtf.matmul(*tensors, output_shape=output)
        else:
            z = mtf.einsum(tensors, output_shape=output)
        if z.size > 1500:
            raise RejectedError
        b.step(f"einsum[output {z.shape}]", inputs, z, _product(inputs, z.shape))

    return case


def broadcast(b: Builder) -> None:
    x = b.pick()
    dims = [*x.shape, *(d for d in b.dims if not x.shape.has(d.name))][: x.shape.ndims + 1]
    b.rng.shuffle(dims)
    shape = mtf.Shape(dims)
    if shape.size > 1500:
        raise RejectedError
    b.step(
        f"broadcast[{shape}]", [x], mtf.broadcast(x.tensor, shape), lambda p: spread(p, x.names, shape), is_exact=True
    )


def transpose(b: Builder) -> None:
    x = b.pick(least=2)
    dims = list(x.shape)
    b.rng.shuffle(dims)
    shape = mtf.Shape(dims)
    b.step(
        f"transpose[{shape}]", [x], mtf.transpose(x.tensor, shape), lambda p: spread(p, x.names, shape), is_exact=True
    )


def _factors(b: Builder, size: int) -> list[int]:
    """Sizes that multiply to `size`: one to three of them, none that must divide anything else."""
    if not size:
        return b.rng.choice([[0], [0, 3], [2, 0, 1]])
    factors = []
    for _ in range(b.rng.randrange(3)):
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        factors.append(b.rng.choice(divisors))
        size //= factors[-1]
    factors.append(size)
    b.rng.shuffle(factors)
    return factors


def reshape(b: Builder) -> None:
    """Merges, splits, and factors that have nothing in common, such as [4, 6] to [6, 4]."""
    x = b.pick(least=1)
    kept = b.rng.randrange(x.shape.ndims + 1)
    rest = math.prod(d.size for d in x.shape.dims[kept:])
    shape = mtf.Shape([*x.shape.dims[:kept], *(b.new_dim(n) for n in _factors(b, rest))])
    target = shape.to_integer_list
    b.step(f"reshape[{shape}]", [x], mtf.reshape(x.tensor, shape), lambda p: tf.reshape(p, target), is_exact=True)


def swapped_reshape(b: Builder) -> None:
    """[m, n] to [n, m]: no common factors."""
    x = b.pick(least=2)
    shape = mtf.Shape([b.new_dim(d.size) for d in reversed(x.shape.dims)])
    target = shape.to_integer_list
    b.step(f"reshape[{shape}]", [x], mtf.reshape(x.tensor, shape), lambda p: tf.reshape(p, target), is_exact=True)


def merge(b: Builder) -> None:
    x = b.pick(least=2)
    at = b.rng.randrange(x.shape.ndims - 1)
    old = x.shape.dims[at : at + 2]
    z = mtf.replace_dimensions(x.tensor, old, b.new_dim(old[0].size * old[1].size))
    assert isinstance(z, mtf.Tensor)
    target = z.shape.to_integer_list
    b.step(f"replace_dimensions[{z.shape}]", [x], z, lambda p: tf.reshape(p, target), is_exact=True)


def rename_dimension(b: Builder) -> None:
    x = b.pick(least=1)
    old = b.rng.choice(x.shape.dims)
    names = [d.name for d in b.dims if d.size == old.size and not x.shape.has(d.name)]
    new = b.rng.choice(names) if names and b.chance(0.5) else b.new_dim(old.size).name
    z = mtf.rename_dimension(x.tensor, old.name, new)
    b.step(f"rename_dimension[{old.name} to {new}]", [x], z, tf.identity, is_exact=True)


def _gap(node: Node, names: list[str]) -> float:
    """The least distance between the two largest, or two smallest, values along the dimensions reduced."""
    axes = [i for i, name in enumerate(node.names) if name in names]
    moved = np.moveaxis(node.array, axes, range(len(axes)))
    flat = np.sort(moved.reshape(-1, *moved.shape[len(axes) :]), 0)
    if len(flat) < 2:
        return math.inf
    return float(min((flat[-1] - flat[-2]).min(), (flat[1] - flat[0]).min()))


def is_clear_of_ties(node: Node, names: list[str]) -> bool:
    if not node.shape.size:
        return True
    # What has no order is refused by the language.
    return (
        node.is_exact
        or node.tensor.dtype.is_complex
        or _gap(node, names) > (0.1 if node.tensor.dtype.size == 2 else 1e-3)
    )


def reduction_arguments(b: Builder, x: Node) -> tuple[dict[str, Any], mtf.Shape]:
    if b.chance(0.5):
        dim = b.rng.choice(x.shape.dims)
        return {"reduced_dim": b.rng.choice([dim, dim.name])}, x.shape - dim
    kept = _some(b, x.shape)
    return {"output_shape": kept}, kept


def _multiplied(x: tf.Tensor, axis: int) -> tf.Tensor:
    """The product along one axis. Of TensorFlow's own the second gradient is NaN or wrong at zeros."""
    elements = tf.unstack(x, axis=axis)
    return functools.reduce(tf.multiply, elements) if elements else tf.reduce_prod(x, axis)


REDUCTIONS: dict[str, Callable[..., tf.Tensor]] = {
    "reduce_sum": tf.reduce_sum,
    "reduce_mean": tf.reduce_mean,
    "reduce_max": tf.reduce_max,
    "reduce_min": tf.reduce_min,
    "reduce_prod": _multiplied,
    "reduce_any": tf.reduce_any,
    "reduce_all": tf.reduce_all,
}


def reduction(name: str) -> Case:
    function, is_bool = REDUCTIONS[name], name in ("reduce_any", "reduce_all")

    def case(b: Builder) -> None:
        dtype = tf.bool if is_bool else b.dtype
        if not is_bool and name != "reduce_mean" and b.chance(0.15):
            dtype = b.integer()
        x = b.pick(dtype, least=1, low=-2, high=2)
        arguments, kept = reduction_arguments(b, x)
        reduced = [d.name for d in x.shape if not kept.has(d.name)]
        if name in ("reduce_max", "reduce_min") and not is_clear_of_ties(x, reduced):
            raise RejectedError
        axes = [i for i, d in enumerate(x.shape) if d.name in reduced]
        left = [d.name for d in x.shape if d.name not in reduced]
        z = getattr(mtf, name)(x.tensor, **arguments)
        is_exact = name in ("reduce_max", "reduce_min", "reduce_any", "reduce_all")

        def reference(p: tf.Tensor) -> tf.Tensor:
            return spread(reduce_over(function, p, axes), left, kept)

        factors = x.shape.size // max(1, z.shape.size) if name == "reduce_prod" else 1
        b.step(f"{name}[{kept}]", [x], z, reference, is_exact=is_exact, factors=factors)

    return case


def with_layout(b: Builder) -> None:
    """An override in the middle of the program: a dimension over one axis, over two in either order, or over none."""
    x = b.pick(least=1)
    dim = b.rng.choice(x.shape.dims)
    axes = [a.name for a in b.mesh_shape if b.chance(0.6)]
    b.rng.shuffle(axes)
    if dim.size % axes_size(axes, b.mesh_shape) and not b.space.any_size:
        raise RejectedError
    layout = mtf.LayoutRules({dim.name: tuple(axes)})
    b.step(
        f"with_layout[{dim.name}:{'+'.join(axes)}]", [x], mtf.with_layout(x.tensor, layout), tf.identity, is_exact=True
    )


def back_to_the_rules(b: Builder) -> None:
    x = b.pick(least=1)
    b.step("with_layout[None]", [x], mtf.with_layout(x.tensor, None), tf.identity, is_exact=True)


def replicate(b: Builder) -> None:
    x = b.pick(least=1)
    b.step("replicate", [x], mtf.replicate(x.tensor), tf.identity, is_exact=True)


CASES: dict[str, Case] = {
    **{f"einsum of {n}": einsum(n) for n in (1, 2, 3, 4)},
    "broadcast": broadcast,
    "transpose": transpose,
    "reshape": reshape,
    "swapped reshape": swapped_reshape,
    "replace_dimensions": merge,
    "rename_dimension": rename_dimension,
    **{name: reduction(name) for name in REDUCTIONS},
    "with_layout": with_layout,
    "with_layout None": back_to_the_rules,
    "replicate": replicate,
}
