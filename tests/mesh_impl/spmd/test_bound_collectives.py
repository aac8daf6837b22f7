"""Every collective on real virtual CPUs, against NumPy: meshes, axes in every order, permuted devices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from meshtf.backends.spmd_mesh_impl import SpmdMeshImpl
from meshtf.dimension import convert_to_shape
from meshtf.errors import ShapeError, UsageError
from meshtf.mesh_impl.spmd._bound_collectives import BoundCollectives
from meshtf.mesh_impl.spmd._group_facts import GroupFacts
from meshtf.testing import assert_close

REVERSED_PAIRS = (3, 1, 0, 2, 7, 5, 6, 4, 11, 9, 10, 8, 15, 13, 12, 14)
IN_ORDER = ("rows:2;cols:2",)
PERMUTED = ("all:12",)
FURTHER_IN_ORDER = ("a:2;b:2;c:2", "rows:2;cols:4", "all:16")
FURTHER_PERMUTED = ("rows:4;cols:4", "rows:2;cols:4", "all:8", "a:2;b:2;c:2", "rows:3;cols:4")


def make_mesh(shape: str, permuted: bool = False, **options: Any) -> SpmdMeshImpl:
    size = convert_to_shape(shape).size
    indices = [i for i in REVERSED_PAIRS if i < size] if permuted else range(size)
    return SpmdMeshImpl(shape, "", [f"CPU:{i}" for i in indices], collective_timeout_seconds=60, **options)


def every_order(mesh: SpmdMeshImpl) -> list[tuple[str, ...]]:
    names = mesh.shape.dimension_names
    return [axes for n in range(1, len(names) + 1) for axes in itertools.permutations(names, n)]


def members(mesh: SpmdMeshImpl, axes: tuple[str, ...], core: int) -> list[int]:
    """The core's group in order of position; written apart from the code under test."""
    sizes, names = mesh.shape.to_integer_list, mesh.shape.dimension_names
    coordinates = [dict(zip(names, np.unravel_index(c, sizes), strict=True)) for c in range(mesh.size)]
    group = [
        c for c in range(mesh.size) if all(coordinates[c][n] == coordinates[core][n] for n in names if n not in axes)
    ]
    return sorted(group, key=lambda c: [coordinates[c][a] for a in axes])


class Expected:
    """What each collective should give, by NumPy."""

    def __init__(self, mesh: SpmdMeshImpl, axes: tuple[str, ...]) -> None:
        self.groups = [members(mesh, axes, core) for core in range(mesh.size)]

    def all_reduce(self, x: np.ndarray, ufunc: np.ufunc) -> np.ndarray:
        return np.stack([ufunc.reduce([x[c] for c in group], dtype=x.dtype) for group in self.groups])

    def all_gather(self, x: np.ndarray, dim: int) -> np.ndarray:
        return np.stack([np.concatenate([x[c] for c in group], dim) for group in self.groups])

    def all_to_all(self, x: np.ndarray, split_dim: int, concat_dim: int) -> np.ndarray:
        return np.stack(
            [
                np.concatenate([np.split(x[c], len(g), split_dim)[g.index(core)] for c in g], concat_dim)
                for core, g in enumerate(self.groups)
            ]
        )

    def reduce_scatter(self, x: np.ndarray, dim: int, ufunc: np.ufunc = np.add) -> np.ndarray:
        whole = self.all_reduce(x, ufunc)
        return np.stack([np.split(whole[c], len(g), dim)[g.index(c)] for c, g in enumerate(self.groups)])

    @staticmethod
    def permute(x: np.ndarray, destinations: tuple[int, ...]) -> np.ndarray:
        result = np.empty_like(x)
        result[list(destinations)] = x
        return result


def values(mesh: SpmdMeshImpl, *shape: int) -> np.ndarray:
    """Whole numbers, so that sums are exact in whatever order."""
    return np.random.default_rng(1).integers(-9, 9, (mesh.size, *shape)).astype(np.float32)


def rotations(size: int) -> tuple[int, ...]:
    return (*range(1, size), 0)


IN_STAGES = (("rows:2;cols:2", {"num_processes": 2, "axes_over_processes": ("cols",)}),)
FURTHER_IN_STAGES = (
    ("rows:2;cols:4", {"num_processes": 4, "axes_over_processes": ("cols",)}),
    ("rows:4;cols:2", {"num_processes": 2}),
    ("all:12", {"num_processes": 12}),
)


@pytest.mark.parametrize(
    ("shape", "permuted", "options"),
    [
        *((shape, False, {}) for shape in IN_ORDER),
        *((shape, True, {}) for shape in PERMUTED),
        *((shape, True, options) for shape, options in IN_STAGES),
        *(pytest.param(shape, False, {}, marks=pytest.mark.long) for shape in FURTHER_IN_ORDER),
        *(pytest.param(shape, True, {}, marks=pytest.mark.long) for shape in FURTHER_PERMUTED),
        *(pytest.param(shape, True, options, marks=pytest.mark.long) for shape, options in FURTHER_IN_STAGES),
    ],
)
def test_every_order_of_axes(program: Callable[..., Any], shape: str, permuted: bool, options: dict[str, Any]) -> None:
    mesh = make_mesh(shape, permuted, **options)
    axes, n = every_order(mesh), 2 * mesh.size
    swap = (1, 0, *range(2, mesh.size))  # both directions between two cores; the others keep theirs

    def body(core: tf.Tensor, collectives: BoundCollectives, x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        results = [collectives.permute(x, rotations(mesh.size)), collectives.permute(x, swap)]
        for a in axes:
            results += [
                collectives.all_reduce(x, a, "add"),
                collectives.all_gather(x, a, 0),
                collectives.all_gather(y, a, 1),
                collectives.all_to_all(x, a, 0, 1),
                collectives.all_to_all(y, a, 1, 2),
                collectives.reduce_scatter(x, a, 0),
                collectives.reduce_scatter(y, a, 1),
            ]
        return results

    x, y = values(mesh, n, 3), values(mesh, 2, n, 3)
    results = iter(program(mesh, axes, body, [rotations(mesh.size), swap])(x, y))
    for destinations in (rotations(mesh.size), swap):
        np.testing.assert_array_equal(next(results), Expected.permute(x, destinations))
    for a in axes:
        expected = Expected(mesh, a)
        np.testing.assert_array_equal(next(results), expected.all_reduce(x, np.add), f"all_reduce {a}")
        np.testing.assert_array_equal(next(results), expected.all_gather(x, 0), f"all_gather {a}")
        np.testing.assert_array_equal(next(results), expected.all_gather(y, 1), f"all_gather {a}, inner")
        np.testing.assert_array_equal(next(results), expected.all_to_all(x, 0, 1), f"all_to_all {a}")
        np.testing.assert_array_equal(next(results), expected.all_to_all(y, 1, 2), f"all_to_all {a}, inner")
        np.testing.assert_array_equal(next(results), expected.reduce_scatter(x, 0), f"reduce_scatter {a}")
        np.testing.assert_array_equal(next(results), expected.reduce_scatter(y, 1), f"reduce_scatter {a}, inner")


def test_three_axes_in_a_rotated_order_on_a_mesh_with_axes_of_size_one(program: Callable[..., Any]) -> None:
    mesh = make_mesh("a:2;one:1;b:3;c:2", permuted=True)
    axes = [("c", "a", "b"), ("one",), ("b", "one", "a"), ()]
    x = values(mesh, 12)

    def body(core: tf.Tensor, collectives: BoundCollectives, x: tf.Tensor) -> list[tf.Tensor]:
        results = []
        for a in axes:
            results += [collectives.all_to_all(x, a, 0, 0), collectives.all_reduce(x, a, "max")]
        return results

    results = iter(program(mesh, axes, body)(x))
    for a in axes:
        np.testing.assert_array_equal(next(results), Expected(mesh, a).all_to_all(x, 0, 0), f"{a}")
        np.testing.assert_array_equal(next(results), Expected(mesh, a).all_reduce(x, np.maximum), f"{a}")


def test_one_core_communicates_nothing(program: Callable[..., Any]) -> None:
    mesh = make_mesh("rows:1;cols:1")

    def body(core: tf.Tensor, c: BoundCollectives, x: tf.Tensor) -> list[tf.Tensor]:
        rows = ("rows",)
        return [
            c.all_reduce(x, ("rows", "cols"), "add") + c.all_gather(x, rows, 0) + c.all_to_all(x, rows, 0, 1),
            c.reduce_scatter(x, rows, 0) + c.permute(x, (0,)),
        ]

    one = program(mesh, [("rows", "cols"), ("rows",)], body, [(0,)])
    results = one(values(mesh, 2, 2))
    np.testing.assert_array_equal(results[0], 3 * values(mesh, 2, 2))
    assert one.collectives.signature() == []
    assert one.op_count < 12


def test_scalars_and_empty_tensors(program: Callable[..., Any]) -> None:
    mesh, axes = make_mesh("rows:2;cols:4", permuted=True), ("cols", "rows")
    turn = rotations(mesh.size)

    def body(core: tf.Tensor, c: BoundCollectives, x: tf.Tensor, empty: tf.Tensor) -> list[tf.Tensor]:
        return [
            c.all_reduce(x, axes, "min"),
            c.permute(x, turn),
            c.all_reduce(empty, axes, "add"),
            c.all_gather(empty, axes, 0),
            c.all_to_all(empty, axes, 0, 1),
            c.reduce_scatter(empty, axes, 0),
            c.permute(empty, turn),
        ]

    x = np.arange(8, dtype=np.float32) - 3
    results = program(mesh, [axes], body, [turn])(x, np.zeros([8, 16, 0], np.float32))
    np.testing.assert_array_equal(results[0], np.full(8, -3))
    np.testing.assert_array_equal(results[1], np.roll(x, 1))
    assert [r.shape[1:] for r in results[2:]] == [(16, 0), (128, 0), (2, 0), (2, 0), (16, 0)]


@pytest.mark.parametrize("shape", ["rows:2;cols:2", "all:12"])
def test_inside_a_loop(program: Callable[..., Any], shape: str) -> None:
    mesh = make_mesh(shape, permuted=True)
    axes, turn, n = tuple(mesh.shape.dimension_names), rotations(mesh.size), mesh.size

    def body(core: tf.Tensor, c: BoundCollectives, x: tf.Tensor) -> list[tf.Tensor]:
        def once(i: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            x = c.permute(c.all_to_all(x, axes, 0, 0), turn)
            return i + 1, x + c.all_gather(c.reduce_scatter(x, axes, 0), axes, 0)

        return [tf.while_loop(lambda i, _: i < 3, once, (0, x))[1]]

    x = expected = values(mesh, n)
    for _ in range(3):
        expected = Expected.permute(Expected(mesh, axes).all_to_all(expected, 0, 0), turn)
        expected = expected + Expected(mesh, axes).all_reduce(expected, np.add)
    np.testing.assert_array_equal(program(mesh, [axes], body, [turn])(x)[0], expected)


def all_collectives(mesh: SpmdMeshImpl) -> Callable[..., list[tf.Tensor]]:
    axes, n = tuple(mesh.shape.dimension_names), mesh.size

    def body(core: tf.Tensor, c: BoundCollectives, x: tf.Tensor) -> list[tf.Tensor]:
        x = tf.reshape(c.all_reduce(x, axes, "add"), [n, 2])
        moved = c.all_to_all(x, axes, 0, 1) + c.all_gather(c.reduce_scatter(x, axes, 0), axes, 1)
        return [c.permute(moved, rotations(n))]

    return body


def test_programs_share_a_process_and_an_outer_function(program: Callable[..., Any]) -> None:
    first, second = make_mesh("rows:2;cols:4"), make_mesh("rows:4;cols:2", permuted=True)
    programs = [program(m, [("rows", "cols")], all_collectives(m), [rotations(8)]) for m in (first, second)]
    x = values(first, 16)
    alone = [p(x)[0] for p in programs]

    @tf.function(autograph=False)
    def outer() -> list[tf.Tensor]:
        called = [programs[0].emit(x)[0], programs[1].emit(x)[0], programs[0].emit(x)[0]]
        looped = tf.while_loop(lambda i, _: i < 3, lambda i, _: (i + 1, programs[1].emit(x)[0]), (0, called[1]))
        return [*called, looped[1]]

    for result, expected in zip(outer(), [alone[0], alone[1], alone[0], alone[1]], strict=True):
        np.testing.assert_array_equal(result, expected)
    assert [p.traces for p in programs] == [1, 1]


def test_a_first_call_inside_the_users_function_leaves_usable_tokens(program: Callable[..., Any]) -> None:
    mesh = SpmdMeshImpl("rows:2", "", ["CPU:14", "CPU:15"])
    step = program(mesh, [("rows",)], lambda core, c, x: [c.all_reduce(x, ("rows",), "add")])
    assert tf.function(lambda: step.emit(np.ones([2, 3], np.float32))[0])().numpy().tolist() == [[2] * 3] * 2
    assert step(np.ones([2, 3], np.float32))[0].tolist() == [[2] * 3] * 2


@pytest.mark.parametrize("shapes", [("rows:4", "rows:8"), ("all:11", "all:12")], ids=["at_once", "in_pairs"])
def test_the_program_does_not_grow_with_the_mesh(program: Callable[..., Any], shapes: tuple[str, str]) -> None:
    counts = []
    for shape in shapes:
        mesh = make_mesh(shape)
        step = program(mesh, [tuple(mesh.shape.dimension_names)], all_collectives(mesh), [rotations(mesh.size)])
        step.trace(values(mesh, 2 * mesh.size))
        counts.append(step.op_count)
        assert step.traces == 1
    assert counts[0] == counts[1]


@pytest.mark.parametrize(("destinations", "gathers"), [((1, 0, 3, 2), 1), ((1, 0, 2, 3), 1), ((1, 2, 3, 0), 2)])
def test_cores_that_exchange_meet_once(
    program: Callable[..., Any], destinations: tuple[int, ...], gathers: int
) -> None:
    mesh = make_mesh("rows:4")
    step = program(mesh, [], lambda core, c, x: [c.permute(x, destinations)], [destinations])
    x = values(mesh, 3)
    np.testing.assert_array_equal(step(x)[0][list(destinations)], x)
    operations = step._function.get_concrete_function().graph.get_operations()
    assert sum(operation.type == "CollectiveGatherV2" for operation in operations) == gathers


def test_a_leading_dimension_is_not_transposed(program: Callable[..., Any]) -> None:
    mesh, axes = make_mesh("rows:2;cols:2"), ("rows", "cols")

    def body(core: tf.Tensor, c: BoundCollectives, x: tf.Tensor) -> list[tf.Tensor]:
        return [c.all_gather(x, axes, 0), c.all_to_all(x, axes, 0, 0), c.reduce_scatter(x[None], axes, 1)]

    step = program(mesh, [axes], body)
    step(values(mesh, 4, 3))
    graph = step._function.get_concrete_function().graph
    assert not [op.name for op in graph.get_operations() if op.type == "Transpose"]


def test_the_same_bits_every_time(program: Callable[..., Any]) -> None:
    mesh, axes = make_mesh("rows:2;cols:4"), ("rows", "cols")

    def body(core: tf.Tensor, c: BoundCollectives, x: tf.Tensor) -> list[tf.Tensor]:
        return [c.all_reduce(x, axes, "add"), c.reduce_scatter(x, axes, 0)]

    step = program(mesh, [axes], body)
    x = np.random.default_rng(2).normal(size=(8, 4096)).astype(np.float32)
    run = tf.function(lambda: step.emit(x), autograph=False)
    runs = {tuple(r.numpy().tobytes() for r in run()) for _ in range(30)}
    assert len(runs) == 1
    (reduced, scattered), *_ = ([np.frombuffer(b, np.float32) for b in bits] for bits in runs)
    reduced = reduced.reshape(8, 4096)
    assert (reduced == reduced[0]).all()  # every core has the same sum
    assert_close(reduced[0], x.sum(0), terms=8)
    assert_close(scattered, x.sum(0), terms=8)


@pytest.mark.parametrize(
    ("emit", "error", "message"),
    [
        (lambda c, x: c.all_reduce(x, ("cols",), "add"), UsageError, "cols were not declared"),
        (lambda c, x: c.permute(x, (1, 2, 3, 0)), UsageError, r"\(1, 2, 3, 0\) was not declared"),
        (lambda c, x: c.all_to_all(x, ("rows",), 0, 0), ShapeError, r"dimension 0 of \[5\].* 2 blocks"),
    ],
)
def test_misuse_is_found_when_tracing(
    program: Callable[..., Any], emit: Callable[..., tf.Tensor], error: type[Exception], message: str
) -> None:
    mesh = make_mesh("rows:2;cols:2")
    with pytest.raises(error, match=message):
        program(mesh, [("rows",)], lambda core, c, x: [emit(c, x)])(values(mesh, 5))


def test_a_permutation_must_be_of_the_cores(program: Callable[..., Any]) -> None:
    with pytest.raises(UsageError, match=r"\(0, 0, 1, 2\) is not a permutation of the 4 cores"):
        program(make_mesh("rows:2;cols:2"), [], lambda core, c: [], [(0, 0, 1, 2)])


def test_facts_of_a_mesh_of_two_thousand_cores_are_few() -> None:
    shape = convert_to_shape("pods:8;rows:16;cols:16")
    facts = GroupFacts.of(shape, ("cols", "pods"), range(shape.size))
    assert facts.keys(lambda cores: math.prod(cores[:1])).shape == (2048,)
    assert not facts.in_order
