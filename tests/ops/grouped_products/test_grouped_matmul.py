"""grouped_matmul: each row times its group's matrix, and how many rows are computed for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.ops.grouped_products import _by_groups, _by_tiles
from meshtf.ops.grouped_products._row_groups import RowGroups
from meshtf.testing import assert_close, interpret, plan
from tests.lowering.emitted import graph_of, nodes_in

RNG = np.random.default_rng(0)
SIZES = np.array([[3, 3, 3, 3], [0, 12, 0, 0], [5, 0, 4, 0], [1, 2, -7, 30]], np.int32)
"""Even; all of one; rows behind the last; more than there are, of which the first 12 count."""
X, W = RNG.standard_normal((4, 12, 6)), RNG.standard_normal((4, 6, 8))
INPUTS = {"x": ("batch:4 rows:12 d:6", X), "w": ("experts:4 d:6 f:8", W), "sizes": ("batch:4 counted:4", SIZES)}
LAYOUTS = [
    "batch:rows", "experts:rows", "d:rows;f:cols", "batch:rows+cols", "batch:rows;experts:cols",
    "batch:rows;experts:rows", "experts:cols+rows;counted:rows", "rows:rows;counted:cols",
    "batch:cols;experts:cols;f:rows",
]  # fmt: skip
FURTHER_ON_DEVICES = [
    *((1, layout) for layout in ("", "experts:cols")),
    *((4, layout) for layout in ("", "batch:rows;experts:cols", "experts:rows+cols", "d:cols;batch:rows")),
]


def product(x: mtf.Tensor, w: mtf.Tensor, sizes: mtf.Tensor) -> mtf.Tensor:
    return mtf.grouped_matmul(mtf.identity(x), mtf.identity(w), sizes, "rows", "experts")


def owners(sizes: np.ndarray, num_rows: int) -> np.ndarray:
    """[.., rows, groups], 1 where a row is the group's."""
    ends = np.minimum(np.cumsum(np.maximum(sizes, 0), -1), num_rows)
    starts = np.concatenate([np.zeros_like(ends[..., :1]), ends[..., :-1]], -1)
    row = np.arange(num_rows)[:, None]
    return ((row >= starts[..., None, :]) & (row < ends[..., None, :])).astype(float)


def written_out(x: tf.Tensor, w: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
    """All groups applied to all rows."""
    own = tf.constant(owners(sizes.numpy(), x.shape[1]), x.dtype)
    return tf.einsum("brd,edf,bre->brf", x, w, own)


@pytest.mark.parametrize("layouts", [LAYOUTS[4:7:2], pytest.param(LAYOUTS, marks=pytest.mark.long)], ids=len)
def test_values_and_gradients_to_the_second(agrees: Any, layouts: list[str]) -> None:
    agrees(product, written_out, INPUTS, layouts)


@pytest.mark.long
def test_on_many_meshes(agrees_on_many_meshes: Any) -> None:
    inputs = {
        "x": ("rows:12 d:12", RNG.standard_normal((12, 12))),
        "w": ("experts:12 f:6 d:12", RNG.standard_normal((12, 6, 12))),
        "sizes": ("experts:12", RNG.integers(0, 3, 12)),
    }
    agrees_on_many_meshes(
        product, lambda x, w, sizes: written_out(x[None], tf.transpose(w, [0, 2, 1]), sizes[None])[0], inputs, order=1
    )


def test_matrices_of_several_sets_and_dimensions_in_any_order(agrees: Any) -> None:
    """Layers side by side have experts of their own; two dimensions are contracted, and one is new."""
    inputs = {
        "x": ("d:3 batch:2 rows:5 layers:2 e:2", RNG.standard_normal((3, 2, 5, 2, 2))),
        "w": ("f:4 e:2 experts:2 d:3 layers:2", RNG.standard_normal((4, 2, 2, 3, 2))),
        "sizes": ("experts:2 batch:2 layers:2", np.array([[[2, 5], [0, 1]], [[3, 0], [4, 1]]])),
    }

    def program(x: mtf.Tensor, w: mtf.Tensor, sizes: mtf.Tensor) -> mtf.Tensor:
        return mtf.grouped_matmul(mtf.identity(x), w, sizes, "rows", "experts", "layers:2 f:4 rows:5 batch:2")

    def reference(x: tf.Tensor, w: tf.Tensor, sizes: tf.Tensor) -> tf.Tensor:
        own = tf.constant(owners(np.transpose(sizes.numpy(), [1, 2, 0]), 5), x.dtype)
        return tf.einsum("dbrle,fexdl,blrx->lfrb", x, w, own)

    agrees(program, reference, inputs, ["", "layers:rows", "layers:cols;experts:rows", "batch:rows;layers:cols"])


@pytest.mark.parametrize(
    ("tables", "layout"),
    [
        (4, "batch:rows;experts:rows;f:cols"),
        *(pytest.param(*more, marks=pytest.mark.long) for more in FURTHER_ON_DEVICES),
    ],
)
def test_on_processors_each_group_is_a_product_of_its_own(tables: int, layout: str) -> None:
    """They make shapes of values, and write where they have made room; the interpreter does as a compiler must."""
    feeds = {
        "x": (f"batch:{tables} rows:12 d:6", X[-tables:].astype(np.float32)),
        "w": ("experts:4 d:6 f:8", W.astype(np.float32)),
        "sizes": (f"batch:{tables} counted:4", SIZES[-tables:]),
    }

    def program(x: mtf.Tensor, w: mtf.Tensor, sizes: mtf.Tensor) -> list[mtf.Tensor]:
        y = product(x, w, sizes)
        firsts = mtf.gradients([mtf.reduce_sum(mtf.square(y))], [x, w])
        return [y, *firsts, *mtf.gradients([mtf.add_n([mtf.reduce_sum(mtf.square(g)) for g in firsts])], [x, w])]

    specs = {name: mtf.TensorSpec(shape, tf.as_dtype(array.dtype)) for name, (shape, array) in feeds.items()}
    step = mtf.function(program, mtf.SpmdMeshImpl("rows:2;cols:2", layout), specs)
    found = [y.numpy() for y in step(**{name: array for name, (_, array) in feeds.items()})]
    for one, other in zip(found, interpret(program, feeds, "rows:1").results, strict=True):
        assert_close(one, other, terms=[6, 8, 12 * tables, 6, 8, 12 * tables])
    again = step(**{name: array for name, (_, array) in feeds.items()})
    for one, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kernels", [_by_groups, _by_tiles], ids=["groups", "tiles"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "complex64"])
def test_rows_of_other_groups_do_not_touch_a_result(kernels: Any, dtype: str, core: Any) -> None:
    """Infinite ones neither: of eleven rows, five are of one group and three of the next."""
    is_float = tf.as_dtype(dtype).is_floating
    x, y = (np.ones([1, 11, 2]) for _ in range(2))
    if is_float:
        x[0, :5], y[0, 8:] = np.inf, np.nan
    groups = RowGroups.of(tf.constant([[5, 3, 0]]), 11, 3)
    rows, others = (tf.cast(tf.constant(each), dtype) for each in (x, y))
    w = tf.cast(tf.constant(np.arange(12.0).reshape(3, 2, 2)), dtype)
    made = tf.cast(kernels.products(core, rows, w, groups, transpose_w=False), tf.complex128).numpy()[0]
    np.testing.assert_array_equal(made[5:8], [[10.0, 12.0]] * 3)
    np.testing.assert_array_equal(made[8:], np.zeros([3, 2]))
    sums = tf.cast(kernels.sums(core, rows, others, groups), tf.complex128).numpy()
    np.testing.assert_array_equal(sums[1], np.full([2, 2], 3.0))
    np.testing.assert_array_equal(sums[2], np.zeros([2, 2]))
    assert not is_float or np.isinf(sums[0]).all()


@pytest.mark.parametrize("kernels", [_by_groups, _by_tiles], ids=["groups", "tiles"])
def test_narrow_sums_over_tables_are_rounded_once(kernels: Any, core: Any) -> None:
    """41 tables of one row each: in bfloat16 a sum of 256 and ones would stay at 256."""
    rows = tf.constant([16.0] + [1.0] * 40, tf.bfloat16)[:, None, None]
    groups = RowGroups.of(tf.ones([41, 1], tf.int32), 1, 1)
    assert kernels.sums(core, rows, rows, groups).numpy().item() == 296.0


def test_rows_in_no_tile_or_group_are_zeros(core: Any) -> None:
    """A tile of one row, of several, and one that a table's border goes through."""
    for sizes, num_rows in [([[0, 0]], 4), ([[1, 0], [0, 1]], 1), ([[2, 0], [0, 4]], 5), ([[0, 3], [1, 1]], 3)]:
        groups = RowGroups.of(tf.constant(sizes), num_rows, 2)
        x = tf.constant(RNG.standard_normal([len(sizes), num_rows, 3]))
        w = tf.constant(RNG.standard_normal([2, 3, 2]))
        wanted = np.einsum("brk,gkm,brg->brm", x, w, owners(np.array(sizes), num_rows))
        for kernels in (_by_groups, _by_tiles):
            found = kernels.products(core, x, w, groups, transpose_w=False)
            assert_close(found.numpy(), wanted, terms=3)


@pytest.mark.parametrize(
    "layout", ["experts:cols", *(pytest.param(layout, marks=pytest.mark.long) for layout in ("", "batch:rows;d:cols"))]
)
def test_in_a_loop_that_is_compiled(layout: str) -> None:
    """By XLA, for one core and for all cores at once, to what it gives operation by operation."""

    def program(x: mtf.Tensor, w: mtf.Tensor, sizes: mtf.Tensor) -> mtf.Tensor:
        def body(y: mtf.Tensor) -> mtf.Tensor:
            h = mtf.tanh(mtf.grouped_matmul(y, w, sizes, "rows", "experts"))
            return mtf.grouped_matmul(h, w, sizes, "rows", "experts")

        going = lambda y: mtf.less(mtf.reduce_max(mtf.abs(y)), 1e6)  # noqa: E731
        return mtf.while_loop(going, body, x, maximum_iterations=40, compiled=True)[0]

    feeds = {"x": (INPUTS["x"][0], X.astype(np.float32)), "w": (INPUTS["w"][0], W.astype(np.float32) / 4)}
    specs = {name: mtf.TensorSpec(shape) for name, (shape, _) in feeds.items()}
    specs["sizes"] = mtf.TensorSpec(INPUTS["sizes"][0], tf.int32)
    mesh, found = {"": "one:1", "experts:cols": "cols:2"}.get(layout, "rows:2;cols:2"), []
    for compile_loops in (True, False):
        mesh_impl = mtf.SpmdMeshImpl(mesh, layout, compile_loops=compile_loops)
        step = mtf.function(program, mesh_impl, specs)
        found.append(step(sizes=SIZES, **{name: array for name, (_, array) in feeds.items()}).numpy())
        assert [not loop.refusal for loop in step.report().loops] == [compile_loops]
    assert_close(*found, terms=[6, 8] * 40)


def test_no_row_is_computed_for_nothing() -> None:
    """The products are those of all rows with one matrix, and a program does not grow with the groups."""
    counts = {}
    for num_groups in (2, 64):
        specs = {
            "x": mtf.TensorSpec("rows:128 d:6"),
            "w": mtf.TensorSpec(f"experts:{num_groups} d:6 f:8"),
            "sizes": mtf.TensorSpec(f"experts:{num_groups}", tf.int32),
        }
        (work,) = [i for i in plan(product, specs, "all:1").instructions if getattr(i, "flops", 0)]
        assert work.flops == sum(p.flops for p in work.facts.products) == 2 * 128 * 6 * 8
        step = mtf.function(product, mtf.SpmdMeshImpl("all:1", ""), specs)
        step(**{name: np.ones(spec.shape.to_integer_list, spec.dtype.as_numpy_dtype) for name, spec in specs.items()})
        counts[num_groups] = len(nodes_in(graph_of(step)))
    assert counts[2] == counts[64]


@pytest.mark.parametrize(
    ("x", "w", "sizes", "fact"),
    [
        ("rows:4 d:6", "experts:2 d:5 f:8", "experts:2", 'dimension "d" has size 6 in one operand and 5'),
        ("rows:4 d:6", "experts:2 d:6 f:8", "experts:3", "must have one dimension that x"),
        ("rows:4 d:6", "experts:2 d:6 f:8", "batch:4 experts:2", "must have one dimension that x"),
        ("rows:4 d:6", "experts:2 d:6 f:8", "rows:4 experts:2", 'none may be "rows"'),
        ("batch:3 rows:4 d:6", "experts:2 d:6 f:8", "experts:2", '"batch", which neither w'),
        ("rows:4 experts:2 d:6", "experts:2 d:6 f:8", "counted:2", 'must not have "experts"'),
        (
            "rows:4 d:6",
            "experts:2 rows:4 d:6 f:8",
            "experts:2",
            'and w [experts:2 rows:4 d:6 f:8] must not have "rows"',
        ),
        ("row:4 d:6", "experts:2 d:6 f:8", "experts:2", 'did you mean "row"'),
    ],
)
def test_what_does_not_fit_is_said(x: str, w: str, sizes: str, fact: str) -> None:
    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        given = mtf.zeros(mesh, sizes, tf.int32)
        return mtf.grouped_matmul(mtf.zeros(mesh, x), mtf.zeros(mesh, w), given, "rows", "experts")

    with pytest.raises(ShapeError) as error:
        plan(program, {}, "all:1")
    assert fact in str(error.value)


def test_types_that_do_not_fit(x: mtf.Tensor) -> None:
    w = mtf.ones(x.mesh, "experts:2 hidden:8 f:3")
    with pytest.raises(DtypeError, match="sizes must be int32 or int64, not float32"):
        mtf.grouped_matmul(x, w, mtf.ones(x.mesh, "experts:2"), "batch", "experts")
    sizes = mtf.zeros(x.mesh, "experts:2", tf.int32)
    with pytest.raises(DtypeError, match="not bool"):
        mtf.grouped_matmul(mtf.cast(x, tf.bool), mtf.cast(w, tf.bool), sizes, "batch", "experts")
    with pytest.raises(ShapeError, match=r"output_shape \[f:3\] must have the dimensions \[batch:4 f:3\]"):
        mtf.grouped_matmul(x, w, sizes, "batch", "experts", "f:3")


@pytest.fixture(name="core")
def _core() -> Any:
    class Core:
        def product_dtype(self, dtype: tf.DType) -> tf.DType:
            return tf.float32 if dtype == tf.bfloat16 else dtype

        def multiplies_matrices(self, dtype: tf.DType) -> bool:
            return True

    return Core()


@pytest.fixture(name="x")
def _x() -> mtf.Tensor:
    graph = mtf.Graph()
    with graph:
        return mtf.ones(mtf.Mesh(graph), "batch:4 hidden:8")
