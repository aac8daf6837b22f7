"""scatter_add and scatter_update. `identity` lays its operand out; an input is whole on every core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import assert_layout_invariant, interpret

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 6))
WHERE = np.array([[0, 3, 7, 3], [8, -1, 3, 2**30], [5, 6, 0, 0], [-(2**31), 1, 1, 1]], np.int32)  # some outside
UPDATES = RNG.standard_normal((4, 4, 6))
INPUTS = {"x": ("vocab:8 d:6", X), "where": ("batch:4 length:4", WHERE), "updates": ("batch:4 length:4 d:6", UPDATES)}
LAYOUTS = ["vocab:rows", "vocab:rows+cols", "vocab:cols+rows", "vocab:rows;d:cols", "batch:rows;d:cols",
           "batch:rows;vocab:cols", "length:rows;batch:cols", "batch:rows+cols"]  # fmt: skip


def _added(x: tf.Tensor, where: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
    return x + tf.einsum("blv,bld->vd", tf.one_hot(where, 8, dtype=x.dtype), updates)


def _updated(x: tf.Tensor, where: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
    """One after the other, in row-major order."""
    rows = tf.unstack(x)
    for index, update in zip(where.numpy().ravel(), tf.unstack(tf.reshape(updates, [-1, *x.shape[1:]])), strict=True):
        if 0 <= index < len(rows):
            rows[index] = update
    return tf.stack(rows)


def _program(name: str, **options: bool) -> Any:
    def program(x: mtf.Tensor, where: mtf.Tensor, updates: mtf.Tensor) -> mtf.Tensor:
        return getattr(mtf, name)(mtf.identity(x), where, mtf.identity(updates), "vocab", **options)

    return program


def test_values_and_gradients(agrees: Any) -> None:
    agrees(_program("scatter_add"), _added, INPUTS, LAYOUTS)
    agrees(_program("scatter_update"), _updated, INPUTS, LAYOUTS)
    few = {"x": INPUTS["x"], "where": ("length:6", WHERE.ravel()[:6]), "updates": ("length:6 d:6", X[2:])}
    agrees(_program("scatter_update"), _updated, few, ["vocab:rows;d:cols", "length:rows;vocab:cols", "d:rows+cols"])
    few["where"] = ("length:6", np.array([0, 3, 7, 5, 8, -1], np.int32))
    agrees(
        _program("scatter_update", are_distinct=True), _updated, few, ["vocab:rows;d:cols", "length:rows;vocab:cols"]
    )


@pytest.mark.parametrize("name", ["scatter_add", "scatter_update"])
@pytest.mark.parametrize("layout", ["batch:rows;d:cols", "d:rows+cols", "batch:rows;vocab:cols"])
def test_what_has_no_elements_stays_as_it_is(name: str, layout: str) -> None:
    """Indices by rows of x, and others, none of which is inside."""
    for x, batch in [("vocab:0 d:4", "batch:4 length:4"), ("batch:4 vocab:0 d:4", "batch:4")]:
        updates = mtf.convert_to_shape(f"{batch} d:4").to_integer_list
        where = np.zeros(updates[:-1], np.int32)
        inputs = {
            "x": (x, np.zeros(mtf.convert_to_shape(x).to_integer_list)),
            "where": (batch, where),
            "updates": (f"{batch} d:4", np.ones(updates)),
        }
        y = interpret(_program(name), inputs, "rows:2;cols:2", layout).results
        assert y.shape == inputs["x"][1].shape


def test_on_many_meshes(agrees_on_many_meshes: Any) -> None:
    inputs = {
        "x": ("vocab:12 d:12", RNG.standard_normal((12, 12))),
        "where": ("batch:12", RNG.integers(-3, 15, 12)),
        "updates": ("d:12 batch:12", RNG.standard_normal((12, 12))),
    }
    agrees_on_many_meshes(
        _program("scatter_update"), lambda x, where, updates: _updated(x, where, tf.transpose(updates)), inputs, order=1
    )
    agrees_on_many_meshes(
        _program("scatter_add"),
        lambda x, where, updates: x + tf.einsum("bv,db->vd", tf.one_hot(where, 12, dtype=x.dtype), updates),
        inputs,
        order=1,
    )


def test_dimensions_in_common(agrees: Any) -> None:
    """A cache: each row of the batch has its own place."""

    def reference(x: tf.Tensor, where: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
        rows = zip(tf.unstack(x), tf.unstack(where), tf.unstack(updates), strict=True)
        return tf.stack([_updated(*row) for row in rows])

    inputs = {"x": ("batch:4 vocab:8 d:6", RNG.standard_normal((4, 8, 6))),
              "where": ("batch:4 length:4", WHERE), "updates": ("batch:4 length:4 d:6", UPDATES)}  # fmt: skip
    agrees(
        _program("scatter_update"),
        reference,
        inputs,
        ["", "batch:rows", "vocab:rows", "batch:rows;vocab:cols", "vocab:cols;length:rows"],
    )


def test_one_place_in_each_row(agrees: Any) -> None:
    inputs = {"x": ("batch:4 vocab:8", RNG.standard_normal((4, 8))), "where": ("batch:4", WHERE[:, 0]),
              "updates": ("batch:4", RNG.standard_normal(4))}  # fmt: skip

    def hot(where: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return tf.one_hot(where, 8, dtype=x.dtype)

    agrees(
        _program("scatter_update"),
        lambda x, where, updates: x * (1 - hot(where, x)) + updates[:, None] * hot(where, x),
        inputs,
        ["", "batch:rows", "vocab:rows", "vocab:cols;batch:rows"],
    )
    agrees(
        _program("scatter_add"),
        lambda x, where, updates: x + updates[:, None] * hot(where, x),
        inputs,
        ["", "batch:rows", "vocab:rows", "vocab:cols;batch:rows"],
    )


def test_one_place_for_all_heads(agrees: Any) -> None:
    """As a cache is written: by row of the batch, or all at one place; and with the index's dimension behind."""

    def reference(x: tf.Tensor, where: tf.Tensor, updates: tf.Tensor) -> tf.Tensor:
        hot = tf.one_hot(where, 8, dtype=x.dtype)[..., None, :, None]
        return x * (1 - hot) + updates[:, :, None] * hot

    x, updates = RNG.standard_normal((4, 3, 8, 6)), RNG.standard_normal((4, 3, 6))
    inputs = {"x": ("batch:4 heads:3 vocab:8 d:6", x), "updates": ("batch:4 heads:3 d:6", updates)}
    for shape, where in (("batch:4", WHERE[:, 1]), ("", WHERE[0, 1]), ("", WHERE[1, 0])):
        agrees(
            _program("scatter_update"),
            reference,
            inputs | {"where": (shape, where)},
            ["", "batch:rows;heads:cols", "vocab:rows", "vocab:cols;batch:rows", "d:rows"],
        )
    behind = {
        "x": ("vocab:8 batch:4 d:6", np.ascontiguousarray(x[:, 0].transpose(1, 0, 2))),
        "where": ("batch:4", WHERE[:, 1]),
        "updates": ("d:6 batch:4", np.ascontiguousarray(updates[:, 0].T)),
    }
    agrees(
        _program("scatter_update"),
        lambda x, where, updates: tf.transpose(
            reference(tf.transpose(x, [1, 0, 2])[:, None], where, tf.transpose(updates)[:, None])[:, 0], [1, 0, 2]
        ),
        behind,
        ["", "batch:rows;heads:cols", "vocab:rows", "vocab:cols;batch:rows", "d:rows"],
    )


@pytest.mark.parametrize("dtype", [bool, np.int32, np.uint8, np.float16, np.complex64])
def test_dtypes(dtype: Any) -> None:
    x, updates = (2 * X).astype(dtype), (2 * UPDATES).astype(dtype)
    expected = _updated(tf.constant(x), tf.constant(WHERE), tf.constant(updates)).numpy()
    inputs = {**INPUTS, "x": ("vocab:8 d:6", x), "updates": ("batch:4 length:4 d:6", updates)}
    for layout in ("", "vocab:rows;batch:cols", "batch:rows", "d:rows"):
        done = interpret(_program("scatter_update"), inputs, "rows:2;cols:2", layout)
        np.testing.assert_array_equal(done.results, expected)
    one = {"x": inputs["x"], "where": ("d:6", WHERE.ravel()[:6]), "updates": ("d:6", updates[0, 0])}
    expected = x.copy()
    for column, row in enumerate(WHERE.ravel()[:6]):
        if 0 <= row < 8:
            expected[row, column] = updates[0, 0, column]
    np.testing.assert_array_equal(interpret(_program("scatter_update"), one, "rows:2", "d:rows").results, expected)


def test_on_virtual_cpus() -> None:
    inputs = {name: (shape, a if a.dtype == np.int32 else a.astype(np.float32)) for name, (shape, a) in INPUTS.items()}
    assert_layout_invariant(
        lambda **xs: [_program("scatter_add")(**xs), _program("scatter_update")(**xs)],
        inputs,
        ["batch:rows;vocab:cols"],
    )


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x = mtf.placeholder(mesh, "vocab:8 d:6")
    where = mtf.placeholder(mesh, "batch:4", tf.int32)
    updates = mtf.placeholder(mesh, "batch:4 d:6")
    whole = mtf.placeholder(mesh, "batch:4 d:6", tf.int32)
    before = len(mesh.graph.operations)
    cases = [
        (ShapeError, lambda: mtf.scatter_add(x, where, updates, "vocb"), r'did you mean "vocab"'),
        (ShapeError, lambda: mtf.scatter_update(x, where, x, "vocab"), r"updates .* must have .* \[batch:4 d:6\]"),
        (DtypeError, lambda: mtf.scatter_add(x, where, whole, "vocab"), r"float32 and int32 meet"),
        (DtypeError, lambda: mtf.scatter_add(x, updates, updates, "vocab"), r"must be int32 or int64, not float32"),
    ]  # fmt: skip
    for kind, call, message in cases:
        with pytest.raises(kind, match=message):
            call()
    assert len(mesh.graph.operations) == before
