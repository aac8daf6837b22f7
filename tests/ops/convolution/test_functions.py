"""Convolutions against TensorFlow's, for strides, dilations, paddings, sizes and splits."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
import meshtf.compat.mesh_tensorflow as original
from meshtf.errors import DtypeError, LayoutError, ShapeError
from meshtf.planning.plan import Compute
from meshtf.testing import assert_close, assert_layout_invariant, interpret, plan
from tests.house.sharpest import sharpest

RNG = np.random.default_rng(0)
LETTERS = "dhw"


def windowed(
    x: tf.Tensor, strides: Sequence[int], dilations: Sequence[int], taps: Sequence[int], padding: str
) -> tf.Tensor:
    """[b, *windows, c] of every tap, as [*taps, b, *windows, c]: TensorFlow's definitions, written out."""
    n = len(taps)
    counts, pads = [], []
    for size, s, d, k in zip(x.shape[1:], strides, dilations, taps, strict=False):
        reach = (k - 1) * d + 1
        count = -(-size // s) if padding != "VALID" else -(-(size - reach + 1) // s)
        lacking = max(0, (count - 1) * s + reach - size) if padding != "VALID" else 0
        counts.append(count)
        before = reach // 2 if padding == "SYMMETRIC" else lacking // 2
        pads.append([before, max(0, (count - 1) * s + reach - size - before) if padding != "VALID" else 0])
    x = tf.pad(x, [[0, 0], *pads, [0, 0]])
    found = []
    for tap in itertools.product(*map(range, taps)):
        begin = [0, *(k * d for k, d in zip(tap, dilations, strict=True)), 0]
        end = [
            x.shape[0],
            *(b + (m - 1) * s + 1 for b, m, s in zip(begin[1:], counts, strides, strict=False)),
            x.shape[-1],
        ]
        found.append(tf.strided_slice(x, begin, end, [1, *strides, 1]))
    return tf.reshape(tf.stack(found), [*taps, x.shape[0], *counts, x.shape[-1]]) if n else x


def convolved(x: tf.Tensor, w: tf.Tensor, strides: Sequence[int], dilations: Sequence[int], padding: str) -> tf.Tensor:
    taps, n = w.shape[:-2], len(strides)
    letters = "xyz"[:n]
    return tf.einsum(f"{letters}b...c,{letters}co->b...o", windowed(x, strides, dilations, taps, padding), w)


def arrays(sizes: Sequence[int], taps: Sequence[int], channels: tuple[int, int] = (2, 4)) -> dict[str, Any]:
    names = LETTERS[-len(sizes) :]
    image = " ".join(f"{n}:{s}" for n, s in zip(names, sizes, strict=True))
    kernel = " ".join(f"f{n}:{s}" for n, s in zip(names, taps, strict=True))
    return {
        "x": (f"b:2 {image} i:{channels[0]}", RNG.standard_normal((2, *sizes, channels[0]))),
        "w": (f"{kernel} i:{channels[0]} o:{channels[1]}", RNG.standard_normal((*taps, *channels))),
    }


def layouts_for(inputs: dict[str, Any], ours: Any, layouts: Sequence[str], mesh: str = "rows:2;cols:2") -> list[str]:
    """Those of the layouts that sizes allow."""
    specs = {n: mtf.TensorSpec(s, tf.float64) for n, (s, _) in inputs.items()}
    legal = []
    for layout in layouts:
        try:
            plan(ours, specs, mesh, layout)
            legal.append(layout)
        except LayoutError:
            continue
    return legal


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_reference_here_is_tensorflows(count: int, padding: str) -> None:
    """The other tests differentiate it twice, which TensorFlow's own kernels refuse with dilations on a CPU."""
    for strides, dilations in (([2, 1, 3], [1, 1, 1]), ([1, 1, 1], [2, 2, 2] if count < 3 else [1, 1, 1])):
        inputs = arrays([7, 8, 9][-count:], [3, 2, 3][-count:])
        x, w = (tf.constant(a) for _, a in inputs.values())
        expected = tf.nn.convolution(x, w, strides[-count:], padding, dilations=dilations[-count:])
        assert_close(convolved(x, w, strides[-count:], dilations[-count:], padding), expected, terms=int(tf.size(w)))


STEPS_1D = [
    (3, 1, 1),
    (2, 2, 1),
    (3, 2, 1),
    (1, 2, 1),
    (5, 1, 1),
    (3, 1, 2),
    (2, 3, 2),
    (4, 4, 1),
    (3, 2, 3),
    (1, 3, 1),
]
SHARPEST_1D = [(5, 1, 1), (2, 3, 2), (3, 2, 3)]
"""Windows over several slices, holes between them, and both together."""
GRID_1D = [
    pytest.param(size, *steps, padding, marks=[] if size == 12 and steps in SHARPEST_1D else pytest.mark.long)
    for size in (8, 12, 24, 30)
    for steps in STEPS_1D
    for padding in ("SAME", "VALID")
    if padding == "SAME" or (steps[0] - 1) * steps[2] < size
]


@pytest.mark.parametrize(("size", "taps", "stride", "dilation", "padding"), GRID_1D)
def test_conv1d_and_its_gradients(agrees: Any, size: int, taps: int, stride: int, dilation: int, padding: str) -> None:
    def ours(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        return mtf.conv1d(x, w, stride, padding, dilation)

    inputs = arrays([size], [taps])
    layouts = layouts_for(inputs, ours, ["w:rows", "w:rows+cols", "w:cols;o:rows"])
    agrees(ours, lambda x, w: convolved(x, w, [stride], [dilation], padding), inputs, ["", *layouts])


GRID_2D = [
    ([8, 12], [3, 3], [1, 1], [1, 1], "SAME"),
    ([8, 12], [3, 2], [2, 1], [1, 1], "SAME"),
    ([10, 16], [3, 5], [1, 2], [1, 1], "VALID"),
    ([8, 8], [2, 3], [1, 1], [2, 1], "SAME"),
    ([8, 8], [3, 3], [2, 2], [2, 2], "SAME"),
    ([6, 10], [3, 3], [1, 1], [1, 2], "VALID"),
    ([4, 4], [5, 7], [1, 1], [1, 1], "SAME"),
    ([8, 12], [7, 3], [2, 2], [1, 1], "SYMMETRIC"),
]
LAYOUTS_2D = ["h:rows;w:cols", "h:rows+cols", "h:rows;b:cols", "i:rows;w:cols", "i:cols;o:rows", "fh:rows;o:cols"]


@pytest.mark.parametrize(
    ("sizes", "taps", "strides", "dilations", "padding"), sharpest(GRID_2D, [GRID_2D[2], GRID_2D[4], *GRID_2D[6:]])
)
def test_conv2d_and_its_gradients(
    agrees: Any, sizes: list[int], taps: list[int], strides: list[int], dilations: list[int], padding: str
) -> None:
    def ours(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        return mtf.conv2d(x, w, strides, padding, dilations)

    inputs = arrays(sizes, taps)
    layouts = layouts_for(inputs, ours, LAYOUTS_2D)
    assert len(layouts) >= 2
    agrees(ours, lambda x, w: convolved(x, w, strides, dilations, padding), inputs, layouts)


MANY_SIZES = [16, 24]
MANY_2D = [
    (taps, strides, dilations, padding)
    for taps in ([1, 2], [2, 3], [3, 3], [4, 5], [7, 1])
    for strides in ([1, 1], [2, 1], [2, 3], [3, 3])
    for dilations in ([1, 1], [2, 1], [3, 2])
    for padding in ("SAME", "VALID")
    if padding == "SAME" or all((k - 1) * d < n for k, d, n in zip(taps, dilations, MANY_SIZES, strict=True))
]


@pytest.mark.long
@pytest.mark.parametrize(("taps", "strides", "dilations", "padding"), MANY_2D)
def test_many_convolutions_in_many_layouts(
    agrees: Any, taps: list[int], strides: list[int], dilations: list[int], padding: str
) -> None:
    agrees(
        lambda x, w: mtf.conv2d(x, w, strides, padding, dilations),
        lambda x, w: convolved(x, w, strides, dilations, padding),
        arrays(MANY_SIZES, taps),
        order=1,
    )


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_conv3d_and_its_gradients(agrees: Any, padding: str, dilation: int) -> None:
    agrees(
        lambda x, w: mtf.conv3d(x, w, [1, 2, 1], padding, dilation),
        lambda x, w: convolved(x, w, [1, 2, 1], [dilation] * 3, padding),
        arrays([6, 7, 6], [2, 3, 3]),
        ["", "d:rows;w:cols", "i:rows", "o:rows+cols"] if padding == "SAME" else ["", "i:rows", "o:cols;b:rows"],
        order=1,
    )


def test_valid_windows_in_slices_of_another_size(agrees: Any) -> None:
    """34 - 2 = 32 windows: slices of 17 give slices of 16."""
    agrees(
        lambda x, w: mtf.conv1d(x, w, 1, "VALID"),
        lambda x, w: convolved(x, w, [1], [1], "VALID"),
        arrays([34], [3]),
        ["w:rows", "w:cols;b:rows"],
    )


@pytest.mark.parametrize(("taps", "dilation"), sharpest([(3, 1), (9, 1), (17, 1), (5, 5), (2, 15)], [(17, 1), (5, 5)]))
def test_windows_larger_than_a_slice(agrees: Any, taps: int, dilation: int) -> None:
    agrees(
        lambda x, w: mtf.conv1d(x, w, 1, "SAME", dilation),
        lambda x, w: convolved(x, w, [1], [dilation], "SAME"),
        arrays([8], [taps]),
        ["w:rows", "w:cols+rows"],
    )


def test_on_many_meshes(agrees_on_many_meshes: Any) -> None:
    agrees_on_many_meshes(
        lambda x, w: mtf.conv2d(x, w, [1, 2]),
        lambda x, w: convolved(x, w, [1, 2], [1, 1], "SAME"),
        arrays([12, 24], [3, 3], (4, 6)),
    )


TRANSPOSED: list[tuple[list[int], list[int], int]] = [
    ([3, 2], [2, 1], 1), ([2, 2], [2, 2], 1), ([3, 3], [1, 2], 2), ([1, 3], [2, 3], 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("taps", "strides", "dilation", "padding"),
    sharpest(
        [(*case, padding) for case in TRANSPOSED for padding in ("SAME", "VALID")],
        [(*TRANSPOSED[0], "VALID"), (*TRANSPOSED[2], "SAME")],
    ),
)
def test_conv2d_transpose_and_its_gradients(
    agrees: Any, taps: list[int], strides: list[int], dilation: int, padding: str
) -> None:
    inputs = arrays([4, 4], taps, (3, 2))
    inputs["w"] = (inputs["w"][0].replace("i:3 o:2", "o:3 i:2"), inputs["w"][1])
    inputs["x"] = ("b:2 h:4 w:4 i:2", RNG.standard_normal((2, 4, 4, 2)))

    def ours(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        return mtf.conv2d_transpose(x, w, strides, padding, dilation)

    def reference(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        reach = [(k - 1) * dilation + 1 for k in taps]
        grown = [max(0, r - s) if padding == "VALID" else 0 for r, s in zip(reach, strides, strict=True)]
        sizes = [4 * s + g for s, g in zip(strides, grown, strict=True)]
        image = tf.zeros([2, *sizes, 3], tf.float64)
        with tf.GradientTape() as tape:
            tape.watch(image)
            y = convolved(image, w, strides, [dilation] * 2, padding)
        return tape.gradient(y, image, x)

    layouts = layouts_for(inputs, ours, ["h:rows;w:cols", "w:rows+cols", "i:rows", "b:cols;h:rows"])
    agrees(ours, reference, inputs, ["", *layouts])


@pytest.mark.parametrize("count", [1, 3])
def test_other_transposed_convolutions(agrees: Any, count: int) -> None:
    sizes, taps = [4, 2, 4][-count:], [3, 2, 3][-count:]
    inputs = arrays(sizes, taps, (2, 2))
    inputs["w"] = (inputs["w"][0].replace("i:2 o:2", "o:2 i:2"), inputs["w"][1])
    ours = {1: mtf.conv1d_transpose, 3: mtf.conv3d_transpose}[count]
    theirs = {1: tf.nn.conv1d_transpose, 3: tf.nn.conv3d_transpose}[count]
    agrees(
        lambda x, w: ours(x, w, 2),
        lambda x, w: theirs(x, w, [2, *(2 * n for n in sizes), 2], 2, "SAME"),
        inputs,
        ["", "w:rows", "w:cols+rows", "o:rows;i:cols"],
        order=1,
    )


DEPTHWISE: list[tuple[list[int], list[int], int | None]] = [
    ([1, 1], [1, 1], 3), ([1, 1], [1, 1], None), ([2, 1], [1, 1], None), ([2, 1], [1, 1], 3), ([1, 1], [2, 3], 3),
    ([1, 1], [2, 3], None),
]  # fmt: skip


@pytest.mark.parametrize(("strides", "dilations", "multiplier"), sharpest(DEPTHWISE, DEPTHWISE[3::2]))
def test_depthwise_conv2d_and_its_gradients(
    agrees: Any, strides: list[int], dilations: list[int], multiplier: int | None
) -> None:
    more, shape = ([multiplier], f" m:{multiplier}") if multiplier else ([], "")
    inputs = {"x": ("b:2 h:8 w:8 i:4", RNG.standard_normal((2, 8, 8, 4))),
              "w": ("fh:3 fw:2 i:4" + shape, RNG.standard_normal((3, 2, 4, *more)))}  # fmt: skip

    def reference(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        return tf.einsum("yxbhwi,yxi...->bhwi...", windowed(x, strides, dilations, [3, 2], "SAME"), w)

    layouts = ["", "h:rows;w:cols", "i:rows;h:cols", "h:cols+rows"]
    agrees(lambda x, w: mtf.depthwise_conv2d(x, w, strides, "SAME", dilations), reference, inputs, layouts)


def test_other_depthwise_convolutions_are_tensorflows(agrees: Any) -> None:
    for count, ours in ((1, mtf.depthwise_conv1d), (3, mtf.depthwise_conv3d)):
        sizes, taps, letters = [4, 6, 4][-count:], [2, 3, 2][-count:], "xyz"[:count]
        names = LETTERS[-count:]
        inputs = {
            "x": ("b:2 " + " ".join(f"{n}:{s}" for n, s in zip(names, sizes, strict=True)) + " i:2",
                  RNG.standard_normal((2, *sizes, 2))),
            "w": (" ".join(f"f{n}:{s}" for n, s in zip(names, taps, strict=True)) + " i:2",
                  RNG.standard_normal((*taps, 2))),
        }  # fmt: skip
        agrees(
            lambda x, w, ours=ours: ours(x, w),
            lambda x, w, n=count, e=letters, t=taps: tf.einsum(
                f"{e}b...i,{e}i->b...i", windowed(x, [1] * n, [1] * n, t, "SAME"), w
            ),
            inputs,
            ["", "w:rows", "i:cols;w:rows"],
            order=1,
        )


def test_convolution_by_name_takes_dimensions_in_any_order(agrees: Any) -> None:
    """Two channel dimensions summed, one kept, two batch dimensions, and an order of the result's own."""
    inputs = {"x": ("i:2 w:8 g:2 a:2 h:4 j:2 b:2", RNG.standard_normal((2, 8, 2, 2, 4, 2, 2))),
              "k": ("o:4 fw:3 j:2 g:2 fh:2 i:2", RNG.standard_normal((4, 3, 2, 2, 2, 2)))}  # fmt: skip

    def ours(x: mtf.Tensor, k: mtf.Tensor) -> mtf.Tensor:
        return mtf.convolution(x, k, {"h": "fh", "w": "fw"}, "o:4 h:4 g:2 b:2 w:4 a:2", strides={"w": 2})

    def reference(x: tf.Tensor, k: tf.Tensor) -> tf.Tensor:
        x = tf.reshape(tf.einsum("iwgahjb->gabhwij", x), [2, 2, 2, 4, 8, 4])
        k = tf.reshape(tf.einsum("owjghi->ghwijo", k), [2, 2, 3, 4, 4])
        ys = [convolved(tf.reshape(x[g], [4, 4, 8, 4]), k[g], [1, 2], [1, 1], "SAME") for g in range(2)]
        return tf.einsum("gabhwo->ohgbwa", tf.reshape(tf.stack(ys), [2, 2, 2, 4, 4, 4]))

    agrees(
        ours, reference, inputs, ["", "h:rows;w:cols", "g:rows;i:cols", "i:rows;j:cols", "o:rows+cols", "a:rows;w:cols"]
    )


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16, tf.int32])
def test_dtypes(dtype: tf.DType) -> None:
    x, w = (tf.cast(RNG.integers(-2, 3, shape), dtype) for shape in ((1, 8, 8, 2), (3, 3, 2, 2)))
    inputs = {"x": ("b:1 h:8 w:8 i:2", x.numpy()), "w": ("fh:3 fw:3 i:2 o:2", w.numpy())}
    for dilation in (1, 2):
        expected = convolved(tf.cast(x, tf.float64), tf.cast(w, tf.float64), [1, 1], [dilation] * 2, "SAME")
        for layout in ("", "h:rows;w:cols", "i:rows"):
            done = interpret(lambda x, w, d=dilation: mtf.conv2d(x, w, dilations=d), inputs, "rows:2;cols:2", layout)
            np.testing.assert_array_equal(tf.cast(done.results, tf.float64), expected)


@pytest.mark.parametrize(
    ("layout", "slices"), [("h:rows", (8, 24)), ("h:rows;w:cols", (8, 6)), ("w:rows+cols", (16, 3))]
)
def test_borders_and_no_more_are_sent(layout: str, slices: tuple[int, int]) -> None:
    specs = {"x": mtf.TensorSpec("b:2 h:16 w:24 i:3"), "w": mtf.TensorSpec("fh:3 fw:5 i:3 o:4")}
    planned = plan(lambda x, w: mtf.conv2d(x, w), specs, "rows:2;cols:4", layout)
    own = slices[0] * slices[1]
    wide = [n + 2 * reach if n != whole else n for n, whole, reach in zip(slices, (16, 24), (1, 2), strict=True)]
    # A core at an inner place needs both borders; where there are two parts only, each has one neighbour.
    sent = sum(c.step.bytes_sent(c.input.slice_bytes, planned.mesh_shape) for c in planned.collectives)
    assert {c.step.kind for c in planned.collectives} == {"permute"}
    assert sent == (wide[0] * wide[1] - own) * 2 * 3 * 4


@pytest.mark.parametrize(
    ("size", "taps", "stride", "padding", "rows"),
    # Over 4: results in slices of 2 of 7, 4 of 14 and of 3 of 9; rows that a core's windows reach and it lacks.
    [(7, 3, 1, "SAME", 2), (14, 3, 2, "SAME", 1), (14, 1, 2, "SAME", 0), (14, 5, 1, "SAME", 4), (11, 3, 1, "VALID", 2)],
)
def test_where_sizes_do_not_divide_borders_are_sent_and_nothing_is_gathered(
    size: int, taps: int, stride: int, padding: str, rows: int
) -> None:
    def program(x: mtf.Tensor, w: mtf.Tensor) -> list[Any]:
        y = mtf.conv2d(x, w, stride, padding)
        return [y, *mtf.gradients(mtf.reduce_sum(mtf.square(y)), [x, w])]

    specs = {"x": mtf.TensorSpec(f"b:2 h:{size} w:6 i:3"), "w": mtf.TensorSpec(f"fh:{taps} fw:1 i:3 o:4")}
    whole = plan(lambda x, w: program(x, w)[0], specs, "rows:4", "h:rows")
    sent = sum(c.step.bytes_sent(c.input.slice_bytes, whole.mesh_shape) for c in whole.collectives)
    assert sent == rows * 2 * 6 * 3 * 4
    assert {c.step.kind for c in plan(program, specs, "rows:4", "h:rows").collectives} <= {"permute", "all_reduce"}


@pytest.mark.parametrize(("height", "stride", "padding", "row"), [(7, 1, "SAME", 6), (16, 2, "VALID", 14)])
def test_windows_that_are_padding_see_nothing_infinite(height: int, stride: int, padding: str, row: int) -> None:
    """What the last window takes in at its last tap would meet, at the first, the zeros of a window that is none."""

    def gradient(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        return mtf.gradients(mtf.reduce_sum(mtf.conv2d(x, w, stride, padding)), [w])[0]

    image = RNG.standard_normal((2, height, 7, 2)).astype(np.float32)
    image[:, row, -1] = np.inf
    kernel = RNG.standard_normal((3, 3, 2, 2)).astype(np.float32)
    inputs = {"x": (f"b:2 h:{height} w:7 i:2", image), "w": ("fh:3 fw:3 i:2 o:2", kernel)}
    alone = interpret(gradient, inputs, "rows:1").results
    is_finite = np.isfinite(alone)
    assert 0 < is_finite.sum() < is_finite.size
    for layout in ("h:rows", "w:cols;h:rows"):
        found = interpret(gradient, inputs, "rows:4;cols:2", layout).results
        np.testing.assert_array_equal(np.isfinite(found), is_finite)
        assert_close(found[is_finite], alone[is_finite], terms=image.size)


@pytest.mark.parametrize(
    ("height", "stride", "padding", "dilation"),
    [(8, 1, "SAME", 1), (9, 1, "VALID", 1), (8, 2, "SAME", 1), (9, 1, "SAME", 2)],
)
@pytest.mark.parametrize("tap", [0, 2])
def test_an_infinite_kernel_meets_no_windows_that_are_padding(
    height: int, stride: int, padding: str, dilation: int, tap: int
) -> None:
    """The image's gradient is not finite where a window gives to an element by an infinite tap, and nowhere else.

    So it is in TensorFlow on one core. At borders of slices there are zeros in place of windows, and zero times
    infinity is NaN.
    """

    def gradient(x: mtf.Tensor, w: mtf.Tensor, dy: mtf.Tensor) -> mtf.Tensor:
        return mtf.gradients(mtf.conv2d(x, w, stride, padding, dilations=dilation), [x], [dy])[0]

    image, kernel, is_tap = np.ones((2, height, 7, 2)), np.ones((3, 3, 2, 2)), np.zeros((3, 3, 2, 2))
    kernel[tap, 1], is_tap[tap, 1] = np.inf, 1.0
    results = tf.nn.conv2d(image, is_tap, stride, padding, dilations=dilation).shape
    dy = RNG.uniform(1.0, 2.0, results)
    shapes = {"x": f"b:2 h:{height} w:7 i:2", "w": "fh:3 fw:3 i:2 o:2", "dy": f"b:2 h:{results[1]} w:{results[2]} o:2"}

    def found(kernel: np.ndarray, mesh_shape: str, layout: str) -> np.ndarray:
        values = {"x": image, "w": kernel, "dy": dy}
        inputs = {name: (shape, values[name].astype(np.float32)) for name, shape in shapes.items()}
        return interpret(gradient, inputs, mesh_shape, layout).results

    is_finite = found(is_tap, "rows:1;cols:1", "") == 0.0
    assert 0 < is_finite.sum() < is_finite.size
    of_ones = found(np.where(np.isinf(kernel), 0.0, kernel), "rows:1;cols:1", "")
    if dilation == 1:  # TensorFlow has no other on CPUs
        alone = tf.raw_ops.Conv2DBackpropInput(
            input_sizes=image.shape, filter=kernel, out_backprop=dy, strides=[1, stride, stride, 1], padding=padding
        )
        np.testing.assert_array_equal(np.isfinite(alone), is_finite)
    for mesh_shape, layout in (("rows:1;cols:1", ""), ("rows:4;cols:2", "h:rows"), ("rows:4;cols:2", "w:cols;h:rows")):
        values = found(kernel, mesh_shape, layout)
        np.testing.assert_array_equal(np.isfinite(values), is_finite, err_msg=layout)
        assert_close(values[is_finite], of_ones[is_finite], terms=kernel.size)


def test_an_infinite_kernel_in_three_dimensions_is_so_on_one_core_as_on_many() -> None:
    """TensorFlow's own kernel, which may put zeros around results, is not what is taken then."""
    kernel, is_tap = np.ones((3, 3, 3, 2, 2), np.float32), np.zeros((3, 3, 3, 2, 2), np.float32)
    kernel[0, 1, 2], is_tap[0, 1, 2] = np.inf, 1.0
    dy = RNG.uniform(1.0, 2.0, (2, 7, 4, 4, 2)).astype(np.float32)

    def found(kernel: np.ndarray, mesh_shape: str, layout: str) -> np.ndarray:
        inputs = {"dy": ("b:2 d:7 h:4 w:4 o:2", dy), "kernel": ("fd:3 fh:3 fw:3 i:2 o:2", kernel)}
        return interpret(
            lambda dy, kernel: original.conv3d_backprop_input("b:2 d:7 h:4 w:4 i:2", kernel, dy, 1, "SAME"),
            inputs, mesh_shape, layout,
        ).results  # fmt: skip

    is_finite = found(is_tap, "rows:1", "") == 0.0
    assert 0 < is_finite.sum() < is_finite.size
    for mesh_shape, layout in (("rows:1;cols:1", ""), ("rows:4;cols:1", "d:rows"), ("rows:2;cols:2", "d:rows;w:cols")):
        np.testing.assert_array_equal(np.isfinite(found(kernel, mesh_shape, layout)), is_finite, err_msg=layout)


def test_where_sizes_divide_nothing_is_done_about_padding() -> None:
    def kinds(height: int) -> set[str]:
        specs = {"x": mtf.TensorSpec(f"b:2 h:{height} w:6 i:3"), "w": mtf.TensorSpec("fh:3 fw:3 i:3 o:4")}
        pooled = {"h": 2, "w": 2}
        planned = plan(lambda x, w: mtf.gradients(mtf.reduce_sum(mtf.max_pool(mtf.conv2d(x, w), pooled)), [x, w]),
                       specs, "rows:2;cols:2", "h:rows")  # fmt: skip
        return {i.kind for i in planned.instructions if isinstance(i, Compute)}

    assert {"padding", "view"} <= kinds(7)
    assert not {"padding", "view", "pad", "crop"} & kinds(8)


def test_gradients_send_each_border_once() -> None:
    def program(x: mtf.Tensor, w: mtf.Tensor) -> list[Any]:
        return mtf.gradients(mtf.reduce_sum(mtf.square(mtf.conv2d(x, w))), [x, w])

    specs = {"x": mtf.TensorSpec("b:2 h:16 w:16 i:3"), "w": mtf.TensorSpec("fh:3 fw:3 i:3 o:4")}
    planned = plan(program, specs, "rows:2;cols:4", "h:cols")
    sent = [(c.step.kind, c.input.shape) for c in planned.collectives]
    image, result = (mtf.convert_to_shape(f"b:2 h:4 w:16 {c}") for c in ("i:3", "o:4"))
    kernel = mtf.convert_to_shape("fh:3 fw:3 i:3 o:4")
    assert sent == [("permute", image)] * 2 + [("permute", result)] * 2 + [("all_reduce", kernel)]


def test_split_channels_cost_one_sum_or_nothing() -> None:
    specs = {"x": mtf.TensorSpec("b:4 h:8 w:8 i:4"), "w": mtf.TensorSpec("fh:3 fw:3 i:4 o:4")}
    for layout, expected in (("i:rows", ["all_reduce"]), ("o:rows", []), ("b:rows", [])):
        planned = plan(lambda x, w: mtf.conv2d(x, w), specs, "rows:2;cols:2", layout)
        assert [c.step.kind for c in planned.collectives] == expected


def test_on_virtual_cpus() -> None:
    def program(x: mtf.Tensor, w: mtf.Tensor) -> list[Any]:
        y = mtf.conv2d(x, w)
        return [mtf.square(y), mtf.conv2d_transpose(y, w, 2, dilations=2)]

    inputs = {"x": ("b:2 h:8 w:7 i:2", RNG.standard_normal((2, 8, 7, 2)).astype(np.float32)),
              "w": ("fh:3 fw:3 i:2 o:4", RNG.standard_normal((3, 3, 2, 4)).astype(np.float32))}  # fmt: skip
    assert_layout_invariant(program, inputs, ["h:cols+rows", "i:rows;w:cols"])


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x, w = mtf.placeholder(mesh, "b:2 h:8 w:8 i:3"), mtf.placeholder(mesh, "fh:3 fw:3 i:3 o:4")
    before = len(mesh.graph.operations)
    with pytest.raises(ShapeError, match=r'a window of 15 along "h" is larger than its size 8'):
        mtf.conv2d(x, w, padding="VALID", dilations=7)
    with pytest.raises(ShapeError, match=r'padding must be "SAME", "VALID" or "SYMMETRIC", not \'same\''):
        mtf.conv2d(x, w, padding="same")
    with pytest.raises(ShapeError, match=r"strides must be one number, or 2, one for each spatial dimension"):
        mtf.conv2d(x, w, [1, 2, 3])
    with pytest.raises(ShapeError, match=r"dilations must be at least 1, and are \[0, 0\]"):
        mtf.conv2d(x, w, dilations=0)
    with pytest.raises(ShapeError, match=r'strides name "hh", along which no window slides'):
        mtf.conv2d(x, w, {"hh": 2})
    with pytest.raises(ShapeError, match=r"the filter .* must have 2 spatial dimensions and two of channels"):
        mtf.conv2d(x, mtf.placeholder(mesh, "fh:3 i:3 o:4"))
    with pytest.raises(ShapeError, match=r'must be the channels "i", the last of .*, and is "j"'):
        mtf.conv2d(x, mtf.placeholder(mesh, "fh:3 fw:3 j:3 o:4"))
    with pytest.raises(ShapeError, match=r'dimension "i" has size 3 in one operand and 5 in another'):
        mtf.conv2d(x, mtf.placeholder(mesh, "fh:3 fw:3 i:5 o:4"))
    with pytest.raises(ShapeError, match=r'under the name "w", which the image has too'):
        mtf.conv2d(x, mtf.placeholder(mesh, "fh:3 w:3 i:3 o:4"))
    with pytest.raises(DtypeError, match=r"float32 and int32 meet"):
        mtf.conv2d(x, mtf.placeholder(mesh, "fh:3 fw:3 i:3 o:4", tf.int32))
    with pytest.raises(ShapeError, match=r'no dimension "fx"'):
        mtf.convolution(x, w, {"h": "fx"})
    made = [o.name for o in mesh.graph.operations[before:]]
    assert all(name.startswith("input") for name in made), made


def test_the_gradient_of_windows_that_leave_gaps() -> None:
    """TensorFlow's filter gradient corrupts memory for 1x1 windows with strides (2, 1)."""
    shape = mtf.convert_to_shape("batch:1 height:20 width:4 inner:2")
    kernel = mtf.convert_to_shape("kh:1 kw:1 inner:2 outer:1")

    def program(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        return mtf.gradients(mtf.reduce_sum(mtf.conv2d(x, w, strides=[2, 1])), w)[0]

    x = np.arange(160, dtype=np.float32).reshape(1, 20, 4, 2)
    inputs = {"x": (shape, x), "w": (kernel, np.ones([1, 1, 2, 1], np.float32))}
    expected = x[:, ::2].sum((0, 1, 2)).reshape(1, 1, 2, 1)
    np.testing.assert_array_equal(interpret(program, inputs, "all:2", "height:all").results, expected)  # of integers
