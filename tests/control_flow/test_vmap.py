"""`vmap`: a function of one element, over all, is the function called for each, with its gradients, on any mesh."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.graph.blocks import with_nested
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import check_tensor
from meshtf.ops.reductions.sum_of_squares import root_of_squares, sum_of_squares

pytestmark = pytest.mark.quick

BATCH, A, B = mtf.Dimension("batch", 2), mtf.Dimension("a", 4), mtf.Dimension("b", 4)
Body = Callable[[mtf.Tensor, mtf.Tensor, mtf.Tensor], Any]
"""A function of x [a b], which differs between elements, of w [a b], which does not, and of ids [b], which do."""


def rows(x: mtf.Tensor) -> mtf.Tensor:
    """Indices [n] from ids, or updates [n b] from x."""
    return mtf.rename_dimension(x, "a" if x.shape.has("a") else "b", "n")


def stopped(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    return mtf.stop_gradient(x, where=mtf.greater(w, 0.0))


def definite(x: mtf.Tensor) -> mtf.Tensor:
    """A positive definite matrix [a b]."""
    other = mtf.rename_dimension(mtf.rename_dimension(x, "b", "c"), "a", "b")
    product = mtf.einsum([mtf.rename_dimension(x, "b", "c"), other], [A, B])
    eye = mtf.cast(mtf.equal(mtf.range(A), mtf.range(B), output_shape=[A, B]), x.dtype)
    return product + 4.0 * eye


def second(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    """A gradient of a gradient, of products, quotients and powers."""
    y = mtf.tanh(x) * w / (2.0 + mtf.square(x)) + x * x * mtf.exp(x)
    (grad,) = mtf.gradients([mtf.reduce_sum(y)], [x])
    (again,) = mtf.gradients([mtf.reduce_sum(mtf.sin(check_tensor(grad)))], [x])
    return check_tensor(again)


def pooled(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.max_pool(x, {"a": 2}) * mtf.avg_pool(x, {"a": 3}, strides=2, padding="SAME")


def gradient_of_windows(x: mtf.Tensor) -> mtf.Tensor:
    y = mtf.reduce_sum(mtf.sin(pooled(x))) + mtf.reduce_sum(mtf.sin(mtf.halo_exchange(x, "a", "b", 1)))
    return check_tensor(mtf.gradients([y], [x])[0])


def scanned(x: mtf.Tensor, w: mtf.Tensor, recompute: str | None = None) -> mtf.Tensor:
    """A state and a stack that differ between elements, rows of x and of w, and a count that is the same for all."""

    def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
        (h, n), (row, same) = carried, parts
        h = mtf.tanh(h * mtf.reduce_sum(row) + same * mtf.to_float(n))
        return [h, n + 1], [h * row, same]

    start = [mtf.zeros(x.mesh, [B]), mtf.zeros(x.mesh, [], tf.int32)]
    (h, n), (ys, same) = mtf.scan(body, start, [x, w], A, recompute=recompute)
    return ys + h * mtf.to_float(n) + same


def repeated(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    """A loop with a condition, which is the same for all elements, and with a sum."""
    start = [x, mtf.zeros(x.mesh, [], tf.int32)]
    y, n, total = mtf.while_loop(
        lambda y, n: n < mtf.to_int32(mtf.reduce_max(w)) + 2,
        lambda y, n: [mtf.tanh(y * w), n + 1, y * y],
        start,
        has_accumulators=True,
        maximum_iterations=9,
    )
    return y * mtf.to_float(n) + total


def sums_so_far(row: mtf.Tensor) -> mtf.Tensor:
    def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
        return [mtf.sin(carried[0]) + parts[0]], [carried[0]]

    return mtf.scan(body, [mtf.reduce_max(row)], [row], B)[1][0]


def nested_scans(x: mtf.Tensor) -> mtf.Tensor:
    def inner(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
        return [mtf.sin(carried[0]) + parts[0]], [carried[0]]

    def outer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
        (last,), (all_of_them,) = mtf.scan(inner, carried, parts, B)
        return [last], [mtf.reduce_sum(all_of_them)]

    (last,), (sums,) = mtf.scan(outer, [mtf.zeros(x.mesh, [])], [x], A)
    return sums + last


def layers(x: mtf.Tensor) -> mtf.Tensor:
    def layer(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> Any:
        kernel = mtf.get_variable("kernel", [B, ("c", 4)])
        product = mtf.einsum([carried[0], kernel], reduced_dims=[B])
        return [carried[0] + mtf.tanh(mtf.rename_dimension(product, "c", "b"))], []

    with mtf.variable_scope("stack"):
        (y,), _ = mtf.layer_stack(layer, x, ("layers", 3))
    return y


def branches(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    is_positive = mtf.greater(mtf.reduce_sum(w), 0.0)
    (y,) = mtf.cond(is_positive, lambda: [x * w], lambda: [mtf.sin(x)])
    (z,) = mtf.cond(is_positive, lambda: [w], lambda: [mtf.cos(x)])
    return y + z


def branches_in_a_loop(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    """The second gradient keeps the predicate of each iteration, which is the same for all elements."""

    def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
        is_positive = mtf.greater(mtf.reduce_sum(parts[0]), 0.0)
        return mtf.cond(is_positive, lambda: mtf.tanh(carried[0] * w), lambda: mtf.sin(carried[0])), []

    return mtf.scan(body, x, w, A)[0][0]


def own_rule(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    """A gradient that is not the derivative, of tensors that differ between elements, and of one that does not."""

    def grad_fn(xs: list[mtf.Tensor], every: list[mtf.Tensor], ops: Any, ys: list[mtf.Tensor], dys: Any) -> Any:
        return [dys[0] * every[1] + mtf.reduce_sum(ys[0]), mtf.reduce_sum(dys[0]) * xs[0]]

    return mtf.custom_gradient(lambda x: mtf.tanh(x) * mtf.sin(w), grad_fn, [x])


def own_rule_twice(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    """The same input twice, with a gradient for each place."""
    return mtf.custom_gradient(lambda a, b: a * b, lambda xs, every, ops, ys, dys: [dys[0], dys[0] * w], [x, x])


def own_rule_around_a_loop(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    """A loop inside reads another loop's result that is the same for all elements."""
    start = [mtf.reduce_sum(x), mtf.reduce_sum(w)]
    (h, same), _ = mtf.scan(lambda c, p: ([mtf.tanh(c[0] + mtf.reduce_sum(p[0])), mtf.sin(c[1])], []), start, x, A)

    def fn(a: mtf.Tensor) -> mtf.Tensor:
        return mtf.scan(lambda c, _: ([mtf.sin(c[0] * same)], []), a, [], ("n", 2))[0][0]

    return mtf.custom_gradient(fn, lambda xs, every, ops, ys, dys: [dys[0], mtf.reduce_sum(dys[0])], x * h)


def own_gradient(y: mtf.Tensor, x: mtf.Tensor) -> mtf.Tensor:
    return check_tensor(mtf.gradients([mtf.reduce_sum(mtf.sin(y))], [x])[0])


# Together they have every operation that can be mapped.
BODIES: dict[str, Body] = {
    "all of it": lambda x, w, ids: x / mtf.reduce_sum(x * x),
    "other order": lambda x, w, ids: mtf.reshape(w + mtf.reduce_sum(x, output_shape=[B]), [("ab", 16)]),
    "product": lambda x, w, ids: mtf.einsum([x, w], [A]),
    "products": lambda x, w, ids: mtf.einsum([x, mtf.rename_dimension(x, "a", "c")], [A, ("c", 4)]),
    "its shape": lambda x, w, ids: mtf.reshape(x, [("all", x.shape.size)]) * float(x.shape.ndims),
    "mean": lambda x, w, ids: mtf.reduce_mean(mtf.square(x) + w, reduced_dim=B),
    "max": lambda x, w, ids: mtf.reduce_max(x - w, reduced_dim=A),
    "concat": lambda x, w, ids: mtf.concat([x, w], "a"),
    "stack": lambda x, w, ids: mtf.stack([x, w, x], "new"),
    "unstack": lambda x, w, ids: mtf.unstack(x, B)[1] * mtf.reduce_sum(mtf.split(x, A, 2)[1], reduced_dim="a"),
    "slice": lambda x, w, ids: mtf.slice(x, 1, 2, "a"),
    "cumulative": lambda x, w, ids: mtf.cumsum(x, "a") + mtf.cummax(x, "b"),
    "softmax": lambda x, w, ids: mtf.softmax(x, A) + mtf.log_softmax(w + x, B),
    "logsumexp": lambda x, w, ids: mtf.reduce_logsumexp(w, A, extra_logit=mtf.reduce_sum(x, reduced_dim=A)),
    "gather of one": lambda x, w, ids: mtf.gather(x, mtf.constant([3, 0], "n:2", tf.int32), A),
    "gather for one": lambda x, w, ids: mtf.gather(w, mtf.rename_dimension(ids, "b", "n"), A),
    "gather": lambda x, w, ids: mtf.gather(x, mtf.rename_dimension(ids, "b", "n"), A),
    "scatter": lambda x, w, ids: mtf.scatter_add(w, rows(ids), rows(x), A),
    "update": lambda x, w, ids: mtf.scatter_update(w, rows(ids), rows(x), A),
    "one element": lambda x, w, ids: mtf.scatter_update(w, mtf.reduce_max(ids), mtf.reduce_sum(x, reduced_dim=A), A),
    "one_hot": lambda x, w, ids: mtf.einsum([mtf.one_hot(ids, A), x, w], [B]),
    "window": lambda x, w, ids: mtf.dynamic_slice(x, mtf.to_int32(mtf.reduce_max(w)), 2, "a"),
    "moved": lambda x, w, ids: mtf.dynamic_shift(w, mtf.reduce_max(ids), "a", wrap=True) + mtf.shift(x, 1, "a", True),
    "pooled": lambda x, w, ids: pooled(x),
    "own gradient of windows": lambda x, w, ids: gradient_of_windows(x),
    "halo": lambda x, w, ids: mtf.halo_exchange(x, "a", "b", 1),
    "reversed": lambda x, w, ids: mtf.reverse(x, "b"),
    "sorted": lambda x, w, ids: mtf.sort(x, "a") + mtf.sort(w, "a"),
    "top": lambda x, w, ids: mtf.top_k(x, A, ("k", 2))[0],
    "top one": lambda x, w, ids: mtf.top_1(x, A)[0] + mtf.to_float(mtf.argmax(x, A)),
    "fourier": lambda x, w, ids: mtf.real(mtf.fft(mtf.cast(x, tf.complex64), ["a"])) + mtf.irfft(mtf.rfft(x, "b"), "b"),
    "cholesky": lambda x, w, ids: mtf.cholesky(definite(x), A, B),
    "qr": lambda x, w, ids: mtf.qr(definite(x), A, B, "inner")[1],
    "solved": lambda x, w, ids: mtf.triangular_solve(mtf.cholesky(definite(x), A, B), mtf.unstack(w, B)[0], A, B),
    "norm": lambda x, w, ids: root_of_squares(sum_of_squares(x * w, mtf.Shape([]))),
    "checked": lambda x, w, ids: mtf.check_finite(x) + mtf.check_finite(w) + mtf.to_float(mtf.check_indices(ids, 4)),
    "in turn": lambda x, w, ids: mtf.depend(x, [mtf.tanh(w)]) + mtf.depend(w, [mtf.tanh(x)]),
    "where": lambda x, w, ids: mtf.where(mtf.greater(x, 0.0), w, mtf.leaky_relu(x)),
    "stopped": lambda x, w, ids: mtf.relu(x) * stopped(x, w),
    "nested": lambda x, w, ids: mtf.vmap(lambda row, other: row / mtf.reduce_sum(row * other), "a")(x, w),
    "own gradient of maxima": lambda x, w, ids: mtf.gradients([mtf.reduce_sum(mtf.sin(mtf.cummax(x, "b")))], [x])[0],
    "rows": lambda x, w, ids: mtf.embedding_lookup(w, rows(ids), A) + mtf.reduce_sum(x),
    "scan": lambda x, w, ids: scanned(x, w),
    "own gradient of a scan": lambda x, w, ids: own_gradient(scanned(x, w, "nested"), x),
    "own second gradient of a scan": lambda x, w, ids: own_gradient(own_gradient(scanned(x, w, "nothing"), x), x),
    "scans of all": lambda x, w, ids: mtf.vmap(sums_so_far, "a")(x * w),
    "nested scans": lambda x, w, ids: own_gradient(nested_scans(x), x),
    "while": lambda x, w, ids: repeated(x, w),
    "own gradient of while": lambda x, w, ids: own_gradient(repeated(x, w), x),
    "layers": lambda x, w, ids: layers(x),
    "own gradient of layers": lambda x, w, ids: own_gradient(layers(x), x),
    "branches": lambda x, w, ids: branches(x, w),
    "own gradient of branches": lambda x, w, ids: own_gradient(branches(x, w), x),
    "own second gradient of branches": lambda x, w, ids: own_gradient(own_gradient(branches_in_a_loop(x, w), x), x),
    "recomputed": lambda x, w, ids: mtf.recompute_grad(lambda x: mtf.tanh(x) * mtf.sin(w), x),
    "own gradient of recomputed": lambda x, w, ids: own_gradient(mtf.recompute_grad(lambda x: mtf.tanh(x) * w, x), x),
    "own rule": lambda x, w, ids: own_rule(x, w),
    "own rule of one input twice": lambda x, w, ids: own_rule_twice(x, w),
    "own rule around a loop": lambda x, w, ids: own_rule_around_a_loop(x, w),
    "own gradient of own rule": lambda x, w, ids: own_gradient(own_rule(x, w), x),
    "own second gradient": lambda x, w, ids: second(x, w),
    "own gradient": lambda x, w, ids: mtf.gradients([mtf.reduce_sum(mtf.tanh(stopped(x, w)) * w)], [x])[0],
}  # fmt: skip

KEYS = np.array([[0, 1, 2, 3], [2, 2, 1, 0]], np.int32)


def both_ways(body: Body, x: mtf.Tensor, w: mtf.Tensor, ids: mtf.Tensor) -> list[list[mtf.Tensor | None]]:
    """A body over all elements, and called for each: the result, and gradients of a function of it."""
    over_all = mtf.vmap(body, BATCH)(x, w, ids)
    each = [body(one, w, own) for one, own in zip(mtf.unstack(x, BATCH), mtf.unstack(ids, BATCH), strict=True)]
    results = [over_all, mtf.stack(each, "batch")]
    return [[y, *mtf.gradients([mtf.reduce_sum(mtf.sin(y))], [x, w])] for y in results]


@pytest.mark.parametrize(
    ("mesh", "layout"),
    [("r:2", "batch:r"), *(pytest.param("r:2;c:2", rules, marks=pytest.mark.long) for rules in ("batch:r;a:c", "b:r"))],
)
def test_over_all_is_as_for_each(mesh: str, layout: str) -> None:
    """Sums are taken in another order, over 32 numbers of a few units at most."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=shape).astype(np.float32) for shape in ([2, 4, 4], [4, 4]))

    def program(x: mtf.Tensor, w: mtf.Tensor, ids: mtf.Tensor) -> Any:
        return {name: both_ways(body, x, w, ids) for name, body in BODIES.items()}

    inputs = {"x": ("batch:2 a:4 b:4", x), "w": ("a:4 b:4", w), "ids": ("batch:2 b:4", KEYS)}
    found = mtf.testing.interpret(program, inputs, mesh, layout).results
    for name, (over_all, each) in found.items():
        for got, expected in zip(over_all, each, strict=True):
            assert (got is None) == (expected is None), name
            if got is not None:
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4, err_msg=name)


def test_every_operation_that_can_be_mapped_is_tried() -> None:
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    with graph:
        x, w, ids = mtf.ones("batch:3 a:4 b:4"), mtf.ones("a:4 b:4"), mtf.zeros("batch:3 b:4", tf.int32)
        for body in BODIES.values():
            mtf.vmap(body, "batch")(x, w, ids)
        mtf.vmap(lambda x: x + mtf.random_normal(mesh, "a:4"), "batch")(x)
    tried = {type(operation) for operation in with_nested(graph.operations)}
    concrete = {cls for cls in subclasses(Operation) if not inspect.isabstract(cls)}
    can_be_mapped = {cls for cls in concrete if cls.mapped and cls.__module__.startswith("meshtf.ops")}
    assert can_be_mapped - tried == set()


def subclasses(cls: type[Operation]) -> set[type[Operation]]:
    own = set(cls.__subclasses__())
    return own.union(*(subclasses(c) for c in own))


def test_names_lines_variables_and_random_numbers() -> None:
    graph = mtf.Graph()
    mtf.Mesh(graph)
    with graph:
        x = mtf.ones("batch:3 a:4")

        def body(row: mtf.Tensor) -> dict[str, Any]:
            assert str(row.shape) == "a:4"
            kept = mtf.dropout(mtf.tanh(row), True, rate=0.5) * mtf.get_variable("w", "a:4")
            return {"kept": kept, "same": mtf.ones("c:2"), "name": "body"}

        found = mtf.vmap(body, "batch")(x)
    tanh = next(o for o in graph.operations if o.name == "tanh")
    assert (tanh.site.function, str(tanh.outputs[0].shape)) == ("body", "batch:3 a:4")
    assert {name: str(getattr(y, "shape", y)) for name, y in found.items()} == {
        "kept": "batch:3 a:4", "same": "batch:3 c:2", "name": "body",
    }  # fmt: skip
    assert str(graph.variables["w"].outputs[0].shape) == "a:4"
    drawn = next(o for o in graph.operations if o.mapped == "always")
    assert str(drawn.outputs[0].shape) == "batch:3 a:4", "each element has random numbers of its own"


@pytest.mark.parametrize("recompute", ["everything", "nothing"])
def test_each_element_has_its_own_random_numbers_in_a_loop(recompute: str) -> None:
    """And its gradients draw the same numbers again, whether they are taken inside or outside."""

    def dropped(x: mtf.Tensor) -> mtf.Tensor:  # [a b]
        start = mtf.zeros(x.mesh, [])
        _, (ys,) = mtf.scan(
            lambda c, p: (c, [mtf.dropout(mtf.square(p[0]), True, rate=0.5)]), start, x, A, recompute=recompute
        )
        return ys

    def program(x: mtf.Tensor) -> Any:
        ys = mtf.vmap(dropped, BATCH)(x)
        inside = mtf.vmap(lambda x: mtf.gradients(mtf.reduce_sum(dropped(x)), x)[0], BATCH)(x)
        return ys, mtf.gradients(mtf.reduce_sum(ys), x)[0], inside

    ones = np.ones([2, 4, 4], np.float32)
    ys, outside, inside = mtf.testing.interpret(program, {"x": ("batch:2 a:4 b:4", ones)}, "r:2", "b:r").results
    assert (ys[0] != ys[1]).any()
    np.testing.assert_array_equal(outside, 2.0 * ys)
    assert {*np.unique(inside)} == {0.0, 4.0}
    assert (inside[0] != inside[1]).any()


def test_unrolled_layers_draw_the_numbers_of_scanned_ones() -> None:
    def dropped(x: mtf.Tensor, *, unroll: bool) -> mtf.Tensor:
        def layer(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> Any:
            return [mtf.dropout(carried[0], True, rate=0.5)], []

        (y,), _ = mtf.layer_stack(layer, x, ("layers", 2), unroll=unroll)
        return y

    inputs = {"x": ("batch:2 a:4 b:4", np.ones([2, 4, 4]))}
    scanned, unrolled = (functools.partial(dropped, unroll=unroll) for unroll in (False, True))
    first, *others = (
        mtf.testing.interpret(way, inputs, "r:2").results
        for way in (scanned, unrolled, lambda x: mtf.vmap(scanned, BATCH)(x), lambda x: mtf.vmap(unrolled, BATCH)(x))
    )
    for other in others:
        np.testing.assert_array_equal(first, other)


def test_gradients_inside_go_through_operations_outside() -> None:
    """A Hessian is the gradient's gradient in each direction, also if the gradient was made outside."""

    def program(x: mtf.Tensor, w: mtf.Tensor, ways: mtf.Tensor) -> Any:
        functions = (
            layers,
            lambda x: scanned(x, w),
            lambda x: branches(x, w),
            lambda x: mtf.recompute_grad(mtf.sin, x),
        )
        grad = own_gradient(mtf.add_n([f(x) for f in functions]), x)

        def product(way: mtf.Tensor) -> Any:  # [b]
            return mtf.gradients([mtf.reduce_sum(grad * way * x)], [x])[0]

        return mtf.vmap(product, "way")(ways), mtf.stack([product(way) for way in mtf.unstack(ways, "way")], "way")

    rng = np.random.default_rng(0)
    inputs = {
        name: (shape, rng.normal(size=mtf.Shape(shape).to_integer_list).astype(np.float32))
        for name, shape in {"x": "a:4 b:4", "w": "a:4 b:4", "ways": "way:2 b:4"}.items()
    }
    over_all, each = mtf.testing.interpret(program, inputs, "r:2", "b:r").results
    np.testing.assert_allclose(over_all, each, rtol=1e-4, atol=1e-4)


def mapped(body: Callable[..., Any], dim: Any = "batch", *more: mtf.Tensor) -> Any:
    graph = mtf.Graph()
    mtf.Mesh(graph)
    with graph:
        return mtf.vmap(body, dim)(mtf.ones("batch:3 a:4"), *[mtf.ones(shape) for shape in more])


def until_large(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.while_loop(lambda x: mtf.reduce_sum(x) < 9.0, lambda x: 2.0 * x, [x])[0]


def loss_of(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
    return {"loss": mtf.reduce_sum(features["x"] * mtf.get_variable("v", []))}


# fmt: off
WRONG: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("no such dimension", lambda: mapped(lambda x: x, "bach"),
     ShapeError, 'no argument has dimension "bach", over which to map: constant [batch:3 a:4] float32; did you mean'),
    ("two sizes", lambda: mapped(lambda x, y: x, "batch", "batch:2"),
     ShapeError, 'dimension "batch" has size 3 in constant [batch:3 a:4] float32 and 2 in constant_1 [batch:2]'),
    ("another size", lambda: mapped(lambda x: x, mtf.Dimension("batch", 4)),
     ShapeError, "mtf.vmap was to map over [batch:4], and constant [batch:3 a:4] float32 has [batch:3]"),
    ("no function", lambda: mtf.vmap(3, "batch"),
     GraphError, "mtf.vmap takes a function of mtf.Tensors, not int"),
    ("no dimension", lambda: mtf.vmap(mtf.tanh, None),
     ShapeError, "mtf.vmap needs the dimension over which it maps, or its name"),
    ("the dimension itself", lambda: mapped(lambda x: x * mtf.ones("batch:3")),
     GraphError, 'has dimension "batch", over which mtf.vmap maps: the function is given'),
    ("a tensor from outside", lambda: mapped(lambda x: next(x.graph.every_operation()).outputs[0]),
     GraphError, 'has dimension "batch", over which mtf.vmap maps: the function is given'),
    ("a loop's condition", lambda: mapped(lambda x: until_large(x)),
     GraphError, 'mapped over\n"batch": its condition differs between elements; do it outside'),
    ("a loop in a loop", lambda: mapped(lambda x: mtf.scan(lambda c, _: ([until_large(c[0])], []), x, [], ("n", 2))),
     GraphError, 'mapped over\n"batch": its condition differs between elements; do it outside'),
    ("a branch", lambda: mapped(lambda x: mtf.cond(mtf.reduce_sum(x) > 0.0, lambda: x, lambda: -x)),
     GraphError, '"batch": its predicate differs between elements; mtf.where chooses for each; do it outside'),
    ("micro-batches", lambda: mapped(lambda x: mtf.serialize_training_step({"x": x}, loss_of, "a", 2)),
     GraphError, "operation microbatches (LoopOperation) of the function of mtf.vmap, made at"),
    ("a function of slices", lambda: mapped(lambda x: mtf.cwise(tf.tanh, x)),
     GraphError, "SlicewiseOperation) of the function of mtf.vmap, made at"),
    ("an assignment", lambda: mapped(lambda x: [mtf.assign(mtf.get_variable("v", []), mtf.ones([])), x][1]),
     GraphError, "operation assign (Assign) of the function of mtf.vmap, made at"),
    ("a window for each", lambda: mapped(lambda x: mtf.dynamic_slice(x, mtf.to_int32(mtf.reduce_sum(x)), 2, "a")),
     GraphError, "operation dynamic_slice (WindowOperation) of the function of mtf.vmap, made at"),
    ("a gradient's own tensor", lambda: mapped(lambda x: mtf.stop_gradient(x, where=mtf.greater(x, 0.0))),
     GraphError, "operation stop_gradient (ElementwiseOperation) of the function of mtf.vmap, made at"),
]
# fmt: on


@pytest.mark.parametrize(("wrong", "kind", "words"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_mistakes_are_named(wrong: Callable[[], Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind) as caught:
        wrong()
    text = str(caught.value)
    assert words in text, text
    assert f"\n  at {__file__}:" in text, text
