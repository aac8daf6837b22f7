"""top_k and the n-th elements, of what is held in its own layout (`identity`: an input is whole on every core)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import assert_layout_invariant, interpret

X = np.random.default_rng(0).standard_normal((4, 12, 4))
TIES = np.random.default_rng(1).integers(0, 3, (4, 12, 4))
LAYOUTS = ["", "b:rows", "b:cols+rows", "a:rows;b:cols", "a:rows;c:cols"]


def _top_k(k: int) -> Any:
    def reference(x: tf.Tensor) -> list[tf.Tensor]:
        return list(tf.math.top_k(tf.transpose(x, [0, 2, 1]), k))

    return reference


@pytest.mark.parametrize("k", [3, 12])
def test_top_k_and_its_gradients(agrees: Any, k: int) -> None:
    x = {"x": ("a:4 b:12 c:4", X)}
    agrees(lambda x: list(mtf.top_k(mtf.identity(x), "b", ("k", k))), _top_k(k), x, LAYOUTS)


def test_top_k_on_many_meshes(agrees_on_many_meshes: Any) -> None:
    x = np.random.default_rng(2).integers(0, 5, (12, 12, 12))
    agrees_on_many_meshes(
        lambda x: list(mtf.top_k(mtf.identity(x), "b", ("k", 6))), _top_k(6), {"x": ("a:12 b:12 c:12", x)}, order=0
    )


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float16, np.float32])
def test_of_equal_elements_the_first(agrees: Any, dtype: Any) -> None:
    x = {"x": ("a:4 b:12 c:4", TIES.astype(dtype))}
    agrees(lambda x: list(mtf.top_k(mtf.identity(x), "b", ("k", 5))), _top_k(5), x, ["b:rows", "b:cols+rows"], order=0)


def test_values_below_a_billion(agrees: Any) -> None:
    """Where the original's `-1e9` at taken positions gave duplicates."""
    x = {"x": ("a:4 b:12 c:4", X - 1e12)}
    agrees(lambda x: list(mtf.top_k(mtf.identity(x), "b", ("k", 3))), _top_k(3), x, ["", "b:rows"], order=0)


@pytest.mark.parametrize("n", [0, 9])
def test_nth_elements(agrees: Any, n: int) -> None:
    agrees(
        lambda x: [mtf.nth_largest_element(mtf.identity(x), n, "b"), mtf.nth_smallest_element(mtf.identity(x), n, "b")],
        lambda x: [tf.sort(x, 1, "DESCENDING")[:, n], tf.sort(x, 1)[:, n]],
        {"x": ("a:4 b:12 c:4", X)},
        ["b:rows", "a:rows;b:cols", "b:rows+cols"],
    )


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
def test_smallest_of_whole_numbers_at_the_ends_of_their_range(dtype: Any) -> None:
    info = np.iinfo(dtype)
    x = np.array([info.max, info.min, 3, info.min, info.max, 5], dtype)
    for layout in ("", "b:rows"):
        done = interpret(lambda x: [mtf.nth_smallest_element(mtf.identity(x), n, "b") for n in range(6)],
                         {"x": ("b:6", x)}, "rows:2", layout)  # fmt: skip
        assert [int(y) for y in done.results] == sorted(x.tolist())


def test_k_under_the_name_of_the_dimension(agrees: Any) -> None:
    x = {"x": ("a:4 b:12 c:4", X)}
    agrees(lambda x: list(mtf.top_k(mtf.identity(x), "b", ("b", 4))), _top_k(4), x, LAYOUTS)


def test_nan_counts_as_lowest_under_every_layout() -> None:
    x = np.array([[np.nan, 1, 2, 0], [1, np.nan, 0, np.nan], [-np.inf, -np.inf, np.nan, 3]])
    for layout in ("", "b:rows", "b:cols+rows"):
        done = interpret(lambda x: mtf.top_k(mtf.identity(x), "b", ("k", 3))[1],
                         {"x": ("a:3 b:4", x)}, "rows:2;cols:2", layout)  # fmt: skip
        np.testing.assert_array_equal(done.results, [[2, 1, 3], [0, 2, 1], [3, 0, 1]])


def _collectives(shape: str, k: int, layout: str) -> list[str]:
    sizes = mtf.convert_to_shape(shape).to_integer_list
    done = interpret(
        lambda x: mtf.top_k(mtf.identity(x), "b", ("k", k)), {"x": (shape, np.zeros(sizes))}, "rows:2;cols:2", layout
    )
    return [c.step.kind for c in done.plan.collectives]


def test_what_moves_is_the_best_of_each_core_or_the_split() -> None:
    assert _collectives("a:4 b:64", 2, "b:rows") == ["all_gather"] * 2
    assert _collectives("a:4 b:64", 2, "b:rows+cols") == ["all_gather"] * 2
    assert _collectives("a:4 b:64", 60, "b:rows") == ["all_gather"]
    assert _collectives("a:64 b:64", 16, "b:rows;k:rows") == ["all_to_all"] * 3  # x, then values and indices back
    assert _collectives("a:4 b:64", 2, "a:rows") == []


def test_on_virtual_cpus() -> None:
    inputs = {"x": ("a:4 b:12", X[..., 0].astype(np.float32))}
    assert_layout_invariant(
        lambda x: [*mtf.top_k(mtf.identity(x), "b", ("k", 4)), mtf.nth_smallest_element(mtf.identity(x), 1, "b")],
        inputs,
        ["b:cols+rows"],
    )


@pytest.mark.parametrize("layout", ["", "b:rows", "a:rows;b:cols"])
def test_none_of_no_elements(layout: str) -> None:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        best, places = mtf.top_k(mtf.identity(x), "b", ("k", 0))
        (slope,) = mtf.gradients([best], [x])
        assert slope is not None
        return [best, places, slope]

    found = interpret(program, {"x": ("a:4 b:0", np.zeros((4, 0)))}, "rows:2;cols:2", layout).results
    assert [x.shape for x in found] == [(4, 0)] * 3


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x = mtf.placeholder(mesh, "batch:4 classes:8")
    before = len(mesh.graph.operations)
    cases = [
        (ShapeError, lambda: mtf.top_k(x, "clases", ("k", 2)), r'no dimension "clases" .*; did you mean "classes"'),
        (ShapeError, lambda: mtf.top_k(x, "classes", ("k", 9)), r'has size 9, but "classes" has only 8 elements'),
        (ShapeError, lambda: mtf.top_k(x, "classes", ("batch", 2)), r'has a dimension "batch" already'),
        (ShapeError, lambda: mtf.nth_largest_element(x, 8, "classes"), r"of size 8 has no element number 8"),
        (ShapeError, lambda: mtf.nth_largest_element(x, 0.5, "classes"), r"a whole number known now, not 0.5"),  # type: ignore[arg-type]
    ]  # fmt: skip
    for kind, call, message in cases:
        with pytest.raises(kind, match=message):
            call()
    assert len(mesh.graph.operations) == before
    with pytest.raises(DtypeError, match=r"bool has no order; convert with mtf.cast"):
        mtf.top_k(mtf.greater(x, 0.0), "classes", ("k", 2))


@pytest.mark.parametrize("layout", ["", "n:cores"])
def test_a_nan_counts_as_minus_infinity(layout: str) -> None:
    """Of both the first comes first, under every layout; `top_k` gives either as -inf, and `sort` as it is."""
    x = np.array([np.nan, -np.inf, -1e300, -np.inf, np.nan, 1.0])

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        lowest = mtf.slice(x, 0, 2, "n")
        return [*mtf.top_k(x, "n", ("k", 6)), mtf.argsort(x, "n"), mtf.sort(x, "n"), *mtf.top_1(lowest, "n")]

    values, places, order, in_order, best, place = interpret(program, {"x": ("n:6", x)}, "cores:2", layout).results
    np.testing.assert_array_equal(places, [5, 2, 0, 1, 3, 4])
    np.testing.assert_array_equal(values, [1.0, -1e300, *[-np.inf] * 4])
    np.testing.assert_array_equal(order, [0, 1, 3, 4, 2, 5])
    np.testing.assert_array_equal(in_order, x[order])
    assert (best, place) == (-np.inf, 0)
