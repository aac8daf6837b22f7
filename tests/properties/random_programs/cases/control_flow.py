"""Cases of loops, branches and recomputation: the same computation is, in TensorFlow, unrolled."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

import meshtf as mtf
from tests.properties.random_programs.builder import Builder, RejectedError
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.program import spread, summed

_POLICIES = [None, True, "products", "costly", "nested"]


def scan(b: Builder) -> None:
    """Along one dimension of a drawn tensor; the value carried has the others, and one more."""
    x = b.pick(least=1, accepts=lambda n: min(d.size for d in n.shape) <= 8)
    small = [i for i, d in enumerate(x.shape) if d.size <= 8]
    if not small:
        raise RejectedError
    at, reverse = b.rng.choice(small), b.chance(0.3)
    part = mtf.Shape([d for i, d in enumerate(x.shape) if i != at])
    carried = b.fresh(part, x.tensor.dtype)

    def body(values: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        y = mtf.sin(values[0]) + parts[0] * 0.5
        return [y], [y * values[0]]

    (last,), (results,) = mtf.scan(
        body, carried.tensor, x.tensor, x.shape[at], reverse=reverse, recompute=b.rng.choice(_POLICIES)
    )

    def reference(c: tf.Tensor, p: tf.Tensor) -> list[tf.Tensor]:
        found = []
        parts = tf.unstack(p, axis=at)
        for own in reversed(parts) if reverse else parts:
            y = tf.sin(c) + own * 0.5
            found.append(y * c)
            c = y
        return [c, tf.stack(found[::-1] if reverse else found) if found else tf.zeros([0, *c.shape], c.dtype)]

    text = f"scan[{x.shape[at]}, reverse={reverse}]"
    b.step(text, [carried, x], [last, results], reference, turns=x.shape[at].size)


def associative_scan(b: Builder) -> None:
    """A linear recurrence, whose function does not commute."""
    x = b.pick(least=1, accepts=lambda n: max(d.size for d in n.shape) > 1)
    at, reverse = b.rng.randrange(x.shape.ndims), b.chance(0.4)

    def combined(before: list[mtf.Tensor], own: list[mtf.Tensor]) -> list[mtf.Tensor]:
        return [before[0] * own[0], own[0] * before[1] + own[1]]

    pair = [mtf.sin(x.tensor), x.tensor]
    _, z = mtf.associative_scan(combined, pair, x.shape[at], reverse=reverse)

    def reference(p: tf.Tensor) -> tf.Tensor:
        parts, found = tf.unstack(p, axis=at), []
        for own in reversed(parts) if reverse else parts:
            found.append(tf.sin(own) * found[-1] + own if found else own)
        return tf.stack(found[::-1] if reverse else found, at) if found else p

    b.step(f"associative_scan[{x.shape[at]}, reverse={reverse}]", [x], z, reference, turns=x.shape[at].size)


def while_loop(b: Builder) -> None:
    """A sum over cores goes round, another is accumulated, one is captured."""
    x = b.pick(least=1)
    dim = b.rng.choice(x.shape.dims)
    kept = mtf.Shape([d for d in x.shape if d.name != dim.name])
    times, most = b.rng.randrange(4), 3
    scale = 1.0 / max(1, dim.size)

    def body(n: mtf.Tensor, y: mtf.Tensor) -> list[mtf.Tensor]:
        return [
            n + 1,
            mtf.reduce_sum(mtf.sin(y) * x.tensor, output_shape=kept) * scale + y,
            mtf.reduce_sum(y * x.tensor),
        ]

    start = mtf.reduce_sum(x.tensor, output_shape=kept) * scale
    n = mtf.zeros(b.mesh, [], tf.int32)
    policy = b.rng.choice(_POLICIES[:4])
    _, y, total = mtf.while_loop(
        lambda n, _: mtf.less(n, times), body, [n, start], has_accumulators=True, maximum_iterations=most,
        recompute=policy,
    )  # fmt: skip

    def reference(p: tf.Tensor) -> list[tf.Tensor]:
        y, total = summed(p, x.shape, kept) * scale, 0.0 * tf.reduce_sum(p)
        for _ in range(times):
            wide = spread(y, kept.dimension_names, x.shape)
            y, total = summed(tf.sin(wide) * p, x.shape, kept) * scale + y, total + tf.reduce_sum(wide * p)
        return [y, total]

    b.step(f"while_loop[{times} of {most}, over {dim}]", [x], [y, total], reference, turns=1 + times)


def cond(b: Builder) -> None:
    x = b.pick()
    if abs(x.array.sum()) < 0.1 + 0.02 * abs(x.array).sum():  # rounding must not choose the branch
        raise RejectedError
    predicate = mtf.less(mtf.reduce_sum(x.tensor), 0.0)
    (z,) = mtf.cond(predicate, lambda: mtf.sin(x.tensor) * 2.0, lambda: mtf.square(x.tensor))
    b.step("cond", [x], z, lambda p: tf.sin(p) * 2.0 if tf.reduce_sum(p) < 0 else tf.square(p))


def recompute_grad(b: Builder) -> None:
    x = b.pick()
    y = b.fresh(x.shape, x.tensor.dtype)
    policy = b.rng.choice(_POLICIES[1:4])
    z = mtf.recompute_grad(lambda p: mtf.tanh(p * y.tensor) + mtf.reduce_mean(mtf.sin(p)), x.tensor, policy)
    b.step("recompute_grad", [x, y], z, lambda p, q: tf.tanh(p * q) + tf.reduce_mean(tf.sin(p)))


def custom_gradient(b: Builder) -> None:
    """The true gradient, so that the reference is the function itself."""
    x = b.pick()

    def gradient(xs: Any, every: Any, operations: Any, ys: Any, grads: Any) -> list[mtf.Tensor]:
        return [grads[0] * mtf.conj(mtf.cos(xs[0]))]

    z = mtf.custom_gradient(mtf.sin, gradient, x.tensor)
    b.step("custom_gradient", [x], z, tf.sin)


def serialize_training_step(b: Builder) -> None:
    """Micro-batches: summed gradients of a variable, a summed loss, and an output put together again."""
    x = b.pick(least=1, accepts=lambda n: max(d.size for d in n.shape) > 1)
    if b.dtype.is_complex:  # a loss is real
        raise RejectedError
    dims = [d for d in x.shape if d.size > 1]
    if not dims:
        raise RejectedError
    batch = b.rng.choice(dims)
    splits = b.rng.choice([n for n in range(2, batch.size + 1) if batch.size % n == 0])
    shape = mtf.Shape([d for d in x.shape if d.name != batch.name and b.chance(0.6)])
    array = b.array(shape, b.dtype, -1.5, 1.5)
    name = f"{b.dims[0].name}_weights_{len(b.program.nodes)}"
    weights = mtf.get_variable(b.mesh, name, shape, b.dtype, initializer=array)
    node = b.known(weights, array)

    def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        h = mtf.sin(features["x"] * weights)
        return {"h": h, "loss": mtf.reduce_sum(mtf.square(h)) * 0.1}

    (grad,), outputs = mtf.serialize_training_step({"x": x.tensor}, model, batch, splits)
    b.mesh.graph.variables[name].trainable = False  # of other programs in this graph the loss does not depend on it

    def reference(p: tf.Tensor, w: tf.Tensor) -> list[tf.Tensor]:
        angle = p * spread(w, shape.dimension_names, x.shape)
        slope = 0.2 * tf.sin(angle) * tf.cos(angle) * p
        return [summed(slope, x.shape, shape), tf.sin(angle), 0.1 * tf.reduce_sum(tf.square(tf.sin(angle)))]

    b.program.variables[name] = node
    text = f"serialize_training_step[{batch}, {splits} splits]"
    b.step(text, [x, node], [grad, outputs["h"], outputs["loss"]], reference)


CASES: dict[str, Case] = {
    "scan": scan,
    "associative_scan": associative_scan,
    "while_loop": while_loop,
    "cond": cond,
    "recompute_grad": recompute_grad,
    "custom_gradient": custom_gradient,
    "serialize_training_step": serialize_training_step,
}
