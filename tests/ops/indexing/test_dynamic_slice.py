"""dynamic_slice and dynamic_update_slice. `identity` lays its operand out; an input is whole on every core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import assert_layout_invariant, interpret

RNG = np.random.default_rng(0)
X, UPDATE = RNG.standard_normal((4, 12)), RNG.standard_normal((4, 4))
LAYOUTS = ["b:rows", "b:cols+rows", "a:rows;b:cols", "a:cols"]


def _slice(x: mtf.Tensor, begin: mtf.Tensor) -> mtf.Tensor:
    return mtf.dynamic_slice(mtf.identity(x), begin, 4, "b")


def _update(x: mtf.Tensor, update: mtf.Tensor, begin: mtf.Tensor) -> mtf.Tensor:
    return mtf.dynamic_update_slice(mtf.identity(x), mtf.identity(update), begin, "b")


def _updated(x: tf.Tensor, update: tf.Tensor, begin: tf.Tensor) -> tf.Tensor:
    at = min(max(int(begin), 0), 8)
    return tf.concat([x[:, :at], update, x[:, at + 4 :]], 1)


def _sliced(x: tf.Tensor, begin: tf.Tensor) -> tf.Tensor:
    at = min(max(int(begin), 0), 8)
    return x[:, at : at + 4]


@pytest.mark.parametrize("begin", [-(2**31), 1, 8, 11])
def test_values_and_gradients(agrees: Any, begin: int) -> None:
    at = np.array(begin, np.int32)
    agrees(_slice, _sliced, {"x": ("a:4 b:12", X), "begin": ("", at)}, LAYOUTS)
    agrees(
        _update, _updated, {"x": ("a:4 b:12", X), "update": ("a:4 b:4", UPDATE), "begin": ("", at)}, LAYOUTS, order=1
    )


def test_on_many_meshes(agrees_on_many_meshes: Any) -> None:
    x = RNG.standard_normal((12, 12, 12))
    agrees_on_many_meshes(
        lambda x, begin: mtf.dynamic_slice(mtf.identity(x), begin, 12 // 2, "b"),
        lambda x, begin: x[:, 5:11],
        {"x": ("a:12 b:12 c:12", x), "begin": ("", np.array(5))},
        order=1,
    )


@pytest.mark.parametrize("dtype", [bool, np.int32, np.uint8, np.float16, np.complex64])
@pytest.mark.parametrize("layout", ["b:rows", "b:cols+rows"])
def test_dtypes(dtype: Any, layout: str) -> None:
    x, update = (2 * X).astype(dtype), (2 * UPDATE).astype(dtype)
    inputs = {"x": ("a:4 b:12", x), "update": ("a:4 b:4", update), "begin": ("", np.array(3, np.int64))}
    done = interpret(lambda x, update, begin: [_slice(x, begin), _update(x, update, begin)],
                     inputs, "rows:2;cols:2", layout)  # fmt: skip
    np.testing.assert_array_equal(done.results[0], x[:, 3:7])
    np.testing.assert_array_equal(done.results[1], np.concatenate([x[:, :3], update, x[:, 7:]], 1))


def test_the_others_may_be_nan() -> None:
    x = X.copy()
    x[:, 8:] = np.nan
    done = interpret(_slice, {"x": ("a:4 b:12", x), "begin": ("", np.array(2))}, "rows:2", "b:rows")
    np.testing.assert_array_equal(done.results, x[:, 2:6])


def _collectives(layout: str, size: int) -> list[str]:
    def program(x: mtf.Tensor, begin: mtf.Tensor) -> mtf.Tensor:
        return mtf.square(mtf.dynamic_slice(mtf.identity(x), begin, size, "b"))

    inputs = {"x": ("a:4 b:64", np.zeros((4, 64))), "begin": ("", np.array(2))}
    return [c.step.kind for c in interpret(program, inputs, "rows:2;cols:2", layout).plan.collectives]


def test_what_moves_is_the_slice() -> None:
    assert _collectives("b:rows", 4) == ["reduce_scatter"]
    assert _collectives("a:rows", 4) == []


def test_an_update_of_a_split_dimension_moves_nothing_but_the_update() -> None:
    inputs = {"x": ("a:4 b:64", np.zeros((4, 64))), "update": ("a:4 b:4", UPDATE), "begin": ("", np.array(2))}
    done = interpret(_update, inputs, "rows:2;cols:2", "b:rows")
    assert [(c.step.kind, c.input.shape.size) for c in done.plan.collectives] == [("all_gather", 16)]


def test_on_virtual_cpus() -> None:
    inputs = {
        "x": ("a:4 b:12", X.astype(np.float32)),
        "update": ("a:4 b:4", UPDATE.astype(np.float32)),
        "begin": ("", np.array(3, np.int32)),
    }
    assert_layout_invariant(
        lambda x, update, begin: [_slice(x, begin), _update(x, update, begin)],
        inputs,
        ["b:cols+rows"],
    )


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x = mtf.placeholder(mesh, "a:4 b:12")
    begin, many = (mtf.placeholder(mesh, shape, tf.int32) for shape in ("", "a:4"))
    real = mtf.placeholder(mesh, "")
    before = len(mesh.graph.operations)
    cases = [
        (ShapeError, lambda: mtf.dynamic_slice(x, begin, 2, "B"), r'no dimension "B"'),
        (ShapeError, lambda: mtf.dynamic_slice(x, begin, 13, "b"),
         r'dimension "b" has 12 elements, but a slice of 13 is wanted'),
        (ShapeError, lambda: mtf.dynamic_slice(x, many, 2, "b"), r"\[a:4\] must be a scalar; .*mtf.gather"),
        (DtypeError, lambda: mtf.dynamic_slice(x, real, 2, "b"), r"must be int32 or int64, not float32"),
        (ShapeError, lambda: mtf.dynamic_update_slice(x, x, begin, "c"), r'no dimension "c"'),
    ]  # fmt: skip
    for kind, call, message in cases:
        with pytest.raises(kind, match=message):
            call()
    assert len(mesh.graph.operations) == before
