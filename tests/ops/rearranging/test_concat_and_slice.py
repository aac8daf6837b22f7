"""concat, split, stack, unstack, slice, pad: values, and that they move what the cores lack, and no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import assert_close, interpret, plan

X = np.random.default_rng(0).standard_normal((4, 12))
Y = np.random.default_rng(1).standard_normal((6, 4))
X_INPUT = {"x": ("a:4 b:12", X)}


def test_concat_orders_operands_by_name(agrees: Any) -> None:
    agrees(
        lambda x, y: mtf.concat([x, y, x], "b"),
        lambda x, y: tf.concat([x, tf.transpose(y), x], 1),
        {**X_INPUT, "y": ("b:6 a:4", Y)},
    )


def test_concat_on_many_meshes(agrees_on_many_meshes: Any) -> None:
    agrees_on_many_meshes(
        lambda x, y: mtf.concat([x, y], "b"),
        lambda x, y: tf.concat([x, y], 1),
        {"x": ("a:12 b:12", np.ones((12, 12))), "y": ("a:12 b:24", np.arange(288.0).reshape(12, 24))},
    )


def test_concat_under_named_layouts(agrees: Any) -> None:
    agrees(
        lambda x, y: mtf.concat([x, y], "b"),
        lambda x, y: tf.concat([x, tf.transpose(y)], 1),
        {"x": ("a:4 b:12", X), "y": ("b:4 a:4", Y[:4])},
        ["b:rows", "b:cols+rows", "a:rows;b:cols", "a:rows+cols"],
    )


def test_concat_of_two_products_is_reduced_once() -> None:
    def program(x: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
        products = [mtf.einsum([x, y], output_shape="a:4 c:4"), mtf.einsum([x, x, y], output_shape="a:4 c:4")]
        return mtf.concat(products, "c")

    y = np.random.default_rng(2).standard_normal((12, 4))
    done = interpret(program, {**X_INPUT, "y": ("b:12 c:4", y)}, "rows:2;cols:2", "b:rows")
    assert [c.step.kind for c in done.plan.collectives] == ["all_reduce"]
    assert_close(done.results, np.concatenate([X @ y, (X * X) @ y], 1), terms=(12, 1))


def test_slice_of_a_product_sends_the_slice_only() -> None:
    def program(x: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
        return mtf.slice(mtf.einsum([x, y], output_shape="a:4 c:4"), 1, 2, "c")

    y = np.random.default_rng(2).standard_normal((12, 4))
    done = interpret(program, {**X_INPUT, "y": ("b:12 c:4", y)}, "rows:2;cols:2", "b:rows")
    (collective,) = done.plan.collectives
    assert collective.input.slice_shape == (4, 2)
    assert_close(done.results, (X @ y)[:, 1:3], terms=12)


@pytest.mark.parametrize("sizes", [3, [2, 4, 6], [12, 0]])
def test_split(agrees: Any, sizes: Any) -> None:
    agrees(lambda x: mtf.split(x, mtf.Dimension("b", 12), sizes), lambda x: tf.split(x, sizes, 1), X_INPUT)


def test_gradient_of_a_split_of_which_one_piece_is_used(agrees: Any) -> None:
    agrees(lambda x: mtf.split(x, "b", 3)[1], lambda x: tf.split(x, 3, 1)[1], X_INPUT)
    agrees(lambda x: mtf.split(x, "b", 6)[1::2], lambda x: tf.split(x, 6, 1)[1::2], X_INPUT)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_stack(agrees: Any, axis: int) -> None:
    agrees(
        lambda x, y: mtf.stack([x, y], "n", axis),
        lambda x, y: tf.stack([x, tf.transpose(y)], axis),
        {"x": ("a:4 b:6", X[:, :6]), "y": ("b:6 a:4", Y)},
    )


def test_stack_along_a_dimension_that_is_split(agrees: Any) -> None:
    agrees(
        lambda x: mtf.stack([x, x * 2, x * 3, x * 4], "n"),
        lambda x: tf.stack([x, x * 2, x * 3, x * 4]),
        X_INPUT,
        ["n:rows", "n:rows+cols", "n:cols;a:rows"],
    )


@pytest.mark.parametrize("layout", [None, "a:rows", "a:cols+rows", "b:rows"])
def test_unstack(agrees: Any, layout: str | None) -> None:
    layouts = layout and [layout]
    agrees(lambda x: mtf.unstack(x, "a"), lambda x: tf.unstack(x), X_INPUT, layouts)
    agrees(lambda x: mtf.unstack(x, "a")[2], lambda x: tf.unstack(x)[2], X_INPUT, layouts)


@pytest.mark.parametrize(("begin", "size"), [(0, 4), (8, 4), (3, 6), (0, 12), (5, 0)])
def test_slice(agrees: Any, begin: int, size: int) -> None:
    agrees(lambda x: mtf.slice(x, begin, size, "b"), lambda x: x[:, begin : begin + size], X_INPUT)


def test_slice_and_pad_along_a_dimension_that_is_split(agrees: Any) -> None:
    agrees(lambda x: mtf.slice(x, 3, 4, "b"), lambda x: x[:, 3:7], X_INPUT, ["b:rows", "b:rows+cols", "b:cols+rows"])
    agrees(
        lambda x: mtf.pad(x, [3, 1], "b"),
        lambda x: tf.pad(x, [[0, 0], [3, 1]]),
        X_INPUT,
        ["b:rows", "b:rows+cols", "b:cols+rows"],
    )


@pytest.mark.parametrize(("paddings", "value"), [([0, 4], 0), ([4, 4], 0.0), ([2, 2], -1.5), ([0, 0], 3)])
def test_pad(agrees: Any, paddings: list[int], value: float) -> None:
    agrees(
        lambda x: mtf.pad(x, paddings, "b", pad_value=value),
        lambda x: tf.pad(x, [[0, 0], paddings], constant_values=value),
        X_INPUT,
    )


def test_pad_of_a_product_with_a_value_pads_once() -> None:
    # One sum over cores, after the addition, would be cheaper, and would add the value of every core.
    def program(x: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
        squares, others = mtf.einsum([x, x], output_shape="a:4"), mtf.einsum([y, y], output_shape="a:8")
        return mtf.pad(squares, [0, 4], "a", pad_value=7.0) + others

    y = np.random.default_rng(2).standard_normal((8, 12))
    done = interpret(program, {**X_INPUT, "y": ("a:8 b:12", y)}, "rows:2;cols:2", "b:rows+cols")
    padded = np.pad(np.sum(X * X, 1), (0, 4), constant_values=7.0)
    assert_close(done.results, padded + np.sum(y * y, 1), terms=(12, 1))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, bool, np.float32, np.float16])
def test_dtypes(agrees: Any, dtype: Any) -> None:
    x = (X > 0).astype(dtype)
    agrees(
        lambda x: [mtf.pad(mtf.concat([x, x], "b"), [4, 4], "b", pad_value=1), mtf.stack(mtf.unstack(x, "a"), "n")],
        lambda x: [tf.pad(tf.concat([x, x], 1), [[0, 0], [4, 4]], constant_values=tf.constant(1, x.dtype)
                          if x.dtype != tf.bool else True), x],
        {"x": ("a:4 b:12", x)},
        order=0,
    )  # fmt: skip


def test_gradients_keep_an_override_that_the_rules_would_forbid() -> None:
    # By the rules both dimensions would be split over `rows` once "b" is back: the gradient must follow its primal.
    def program(x: mtf.Tensor) -> list[Any]:
        pieces = mtf.unstack(mtf.with_layout(x, "a:rows"), "b")
        return mtf.gradients(mtf.reduce_sum(mtf.square(pieces[1] + pieces[3])), [x])

    done = interpret(program, X_INPUT, "rows:2;cols:2", "b:rows")
    expected = np.zeros_like(X)
    expected[:, [1, 3]] = 2 * (X[:, [1]] + X[:, [3]])
    assert_close(done.results[0], expected, terms=2)


def _tensors() -> tuple[mtf.Tensor, mtf.Tensor]:
    mesh = mtf.Mesh(mtf.Graph())
    return mtf.placeholder(mesh, "length:4 hidden:12", name="x"), mtf.placeholder(mesh, "length:5 hidden:8", name="y")


def test_errors_name_the_dimension() -> None:
    x, y = _tensors()
    cases = [
        (lambda: mtf.concat([x, y], "lenght"), r'no dimension "lenght" in .*; did you mean "length"'),
        (lambda: mtf.concat([x, y], "length"), r'operand 1 has "hidden" of size 8, and operand 0 of size 12'),
        (lambda: mtf.stack([x, y], "n"), r'"length" of size 5, and operand 0 of size 4; operand 1 has "hidden"'),
        (lambda: mtf.stack([x, x], "hidden"), r'has dimension "hidden" already; use mtf.concat'),
        (lambda: mtf.stack([x, x], "n", 3), r"axis 3 is not in \[-3, 2\]"),
        (lambda: mtf.stack([x], mtf.Dimension("n", 2)), r"has size 2, but 1 tensor is stacked"),
        (lambda: mtf.split(x, "hiden", 2), r'did you mean "hidden"'),
        (lambda: mtf.split(x, "hidden", 5), r'dimension "hidden" of size 12 does not divide into 5'),
        (lambda: mtf.split(x, "hidden", 0), r"does not divide into 0"),
        (lambda: mtf.split(x, "hidden", [4, 4]), r"sizes \[4, 4\] do not add up"),
        (lambda: mtf.split(x, mtf.Dimension("hidden", 8), 2), r"has size 12 in .*, not 8"),
        (lambda: mtf.unstack(x, "hiden"), r'did you mean "hidden"'),
        (lambda: mtf.slice(x, 9, 4, "hidden"), r'begin 9 and size 4 lead out of dimension "hidden" of size 12'),
        (lambda: mtf.slice(x, -1, 4, "hidden"), r"begin -1"),
        (lambda: mtf.slice(x, 0, 2, "hiden"), r'did you mean "hidden"'),
        (lambda: mtf.slice(x, 0.5, 2, "hidden"), r"begin must be a whole number known now, not 0.5"),  # type: ignore[arg-type]
        (lambda: mtf.pad(x, [1], "hidden"), r"paddings must be \[before, after\]"),
        (lambda: mtf.pad(x, [-1, 0], "hidden"), r"at least 0"),
        (lambda: mtf.pad(x, [1, 1], "hiden"), r'did you mean "hidden"'),
        (lambda: mtf.concat([], "hidden"), r"concat of no tensors"),
    ]  # fmt: skip
    for call, message in cases:
        with pytest.raises(ShapeError, match=message) as error:
            call()
        assert __file__ in str(error.value)
    assert len(x.graph.operations) == 2, "an operation that is refused leaves no trace"


def test_dtypes_must_agree() -> None:
    x, _ = _tensors()
    with pytest.raises(DtypeError, match="float32 and int32 meet"):
        mtf.concat([x, mtf.to_int32(x)], "hidden")
    with pytest.raises(DtypeError, match=r"1.5 is no int32"):
        mtf.pad(mtf.to_int32(x), [0, 1], "hidden", pad_value=1.5)


LINE = mtf.Dimension("x", 16)
WIDTH = 3
ROW = WIDTH * 4  # bytes of one element of the line
SHAPE = mtf.Shape([LINE, ("width", WIDTH)])
ARRAY = np.arange(48, dtype=np.float32).reshape(16, WIDTH)

MOVED: dict[str, tuple[Callable[[mtf.Tensor], mtf.Tensor], np.ndarray, list[int]]] = {
    # core j needs [2j, 2j + 2) and holds [4j, 4j + 4): two elements from two cores before, four from the one before
    "slice": (lambda x: mtf.slice(x, 0, 8, "x"), ARRAY[:8], [2, 4]),
    # core j needs [5j - 2, 5j + 3): core 1 one from behind, core 2 one from before
    "pad": (lambda x: mtf.pad(x, [2, 2], "x"), np.pad(ARRAY, [[2, 2], [0, 0]]), [1, 1]),
    # the first half lies with cores 0 and 1, the second with 2 and 3
    "split": (lambda x: mtf.split(x, LINE, 2)[1], ARRAY[8:], [4, 2]),
    # core j needs [3j + 1, 3j + 4): core 2 one element from before, core 3 two
    "slice into parts that do not divide": (lambda x: mtf.slice(x, 1, 10, "x"), ARRAY[1:11], [2]),
    # core j needs [5j, 5j + 5): j + 1 elements from behind, and core 3 zeros
    "pad to what does not divide": (lambda x: mtf.pad(x, [0, 2], "x"), np.pad(ARRAY, [[0, 2], [0, 0]]), [3]),
    # slices of 4, whose ends may be anything
    "stay": (
        lambda x: mtf.slice(mtf.pad(mtf.slice(x, 0, 15, "x"), [0, 1], "x", pad_value=None), 0, 13, "x"),
        ARRAY[:13],
        [],
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_only_what_a_core_lacks_moves(name: str) -> None:
    fn, expected, elements = MOVED[name]
    collectives = plan(fn, {"x": mtf.TensorSpec(SHAPE)}, "rows:4", "x:rows").collectives
    assert all(c.step.kind == "permute" for c in collectives)
    assert sorted(c.input.slice_bytes for c in collectives) == sorted(n * ROW for n in elements)
    result = interpret(fn, {"x": (SHAPE, ARRAY)}, "rows:4", "x:rows").results
    np.testing.assert_array_equal(result, expected)


def test_padding_that_falls_on_the_cores_borders_moves_whole_slices_once() -> None:
    # core j of 4 needs [8j - 16, 8j - 8): core 2 the slices of cores 0 and 1, core 3 those of 2 and 3
    def fn(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.concat([mtf.zeros_like(x), x], "x")

    result = interpret(fn, {"x": (SHAPE, ARRAY)}, "rows:4", "x:rows").results
    np.testing.assert_array_equal(result, np.concatenate([np.zeros_like(ARRAY), ARRAY]))
