"""Convolutions, pooling and their gradients against NumPy, drawn from a grid of sizes, strides, dilations and paddings.

TensorFlow's own kernels are wrong for some, differently from processor to processor. `make test-long` draws many more.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.ops.convolution import _kernels as kernels
from meshtf.ops.convolution._sliding import Sliding, same_padding
from meshtf.tensorflow_private.xla_modules import parsed_hlo
from meshtf.testing import interpret
from tests.ops.convolution.windows_in_numpy import convolution_gradients, convolved, pooled, pooling_gradient

pytestmark = pytest.mark.plain_cpu

DTYPES = [np.float32, ml_dtypes.bfloat16, np.float16, np.float64]
FEW, MANY = 8, 1500
COUNTS = [FEW, pytest.param(MANY, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]
SMALL = [pytest.param(FEW // 2), pytest.param(MANY // 10, marks=[pytest.mark.long, pytest.mark.timeout(1800)])]


@dataclasses.dataclass(frozen=True)
class Case:
    """Windows over one image: batch, spatial sizes, groups and channels; sizes of the windows."""

    batch: int
    sizes: tuple[int, ...]
    taps: tuple[int, ...]
    sliding: Sliding
    channels: tuple[int, int, int]
    padding: str

    @classmethod
    def drawn(cls, draw: random.Random, count: int, paddings: tuple[str, ...], *, is_dilated: bool = True) -> Case:
        """Of `count` spatial dimensions. Half of the strides or more are above the filter's size, or equal to it."""
        padding = draw.choice(paddings)
        dilations = [draw.choice([1, 2, 3]) if is_dilated and draw.random() < 0.3 else 1 for _ in range(count)]
        taps = [draw.choice([1, 2, 3, 4]) for _ in range(count)]
        strides = [draw.choice([1, k, k + 1, k + 2, 2]) for k in taps]
        sizes = [(k - 1) * d + draw.choice([1, 2, 3, 4, 5, 8]) for k, d in zip(taps, dilations, strict=True)]
        around = []
        for n, k, s, d in zip(sizes, taps, strides, dilations, strict=True):
            lacking = max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n)
            same = (lacking // 2, lacking - lacking // 2)
            around.append({"SAME": same, "VALID": (0, 0), "any": (draw.randrange(3), draw.randrange(3))}[padding])
        channels = (draw.choice([1, 1, 2]), draw.choice([1, 2, 3, 8]), draw.choice([1, 2, 4, 8]))
        sliding = Sliding(tuple(strides), tuple(dilations), tuple(around))
        return cls(draw.choice([1, 2]), tuple(sizes), tuple(taps), sliding, channels, padding)

    @property
    def image(self) -> list[int]:
        return [self.batch, *self.sizes, *self.channels[:2]]

    @property
    def kernel(self) -> list[int]:
        return [*self.taps, *self.channels]


@pytest.mark.parametrize("number", COUNTS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_convolutions_of_whole_images(count: int, number: int) -> None:
    draw, rng = random.Random(count), np.random.default_rng(count)
    for i in range(number):
        case = Case.drawn(draw, count, ("SAME", "VALID", "any"))
        for dtype in DTYPES if number == MANY else DTYPES[i % 2 :: 2]:
            x, w = (rng.standard_normal(shape).astype(dtype) for shape in (case.image, case.kernel))
            dy = rng.standard_normal(convolved(x.astype(np.float64), w.astype(np.float64), case.sliding).shape)
            check_convolution(case, x, w, dy.astype(dtype))


def test_convolutions_without_groups_are_no_more_than_tensorflow_s() -> None:
    case = Case(2, (5, 4), (3, 2), Sliding((1, 1), (1, 1), ((1, 1), (0, 1))), (1, 3, 8), "SAME")

    @tf.function(autograph=False)
    def compute(x: tf.Tensor, w: tf.Tensor, dy: tf.Tensor) -> list[tf.Tensor]:
        return computed(case, x, w, dy)

    specs = [tf.TensorSpec(shape) for shape in ([2, 5, 4, 3], [3, 2, 3, 8], [2, 5, 4, 8])]
    types = {operation.type for operation in compute.get_concrete_function(*specs).graph.get_operations()}
    assert types == {"Placeholder", "Const", "Identity", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (1, 2)])
def test_a_gpu_convolves_bfloat16_as_it_is(size: int, stride: int) -> None:
    """In float32 it would take twice as long. Sums are rounded once all the same."""
    sliding, side = Sliding((stride,) * 2, (1, 1), (same_padding(6, size, stride, 1),) * 2), 6 // stride
    case, rng = Case(2, (6, 6), (size, size), sliding, (1, 24, 8), "SAME"), np.random.default_rng(0)
    shapes = case.image, case.kernel, [2, side, side, 1, 8]
    x, w, dy = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes)

    def program(x: mtf.Tensor, w: mtf.Tensor, dy: mtf.Tensor) -> list[mtf.Tensor | None]:
        y = mtf.conv2d(x, w, stride)
        return [y, *mtf.gradients(y, [x, w], [dy])]

    given = {
        "x": ("batch:2 height:6 width:6 in:24", np.squeeze(x, -2)),
        "w": (f"h:{size} w:{size} in:24 out:8", np.squeeze(w, -3)),
        "dy": (f"batch:2 height:{side} width:{side} out:8", np.squeeze(dy, -2)),
    }
    inputs = {name: mtf.TensorSpec(shape, tf.bfloat16) for name, (shape, _) in given.items()}
    step = mtf.function(program, mtf.GpuMeshImpl("all:1", ""), inputs)
    found = step(**{name: a for name, (_, a) in given.items()})
    check_results(case, (x, w, dy), [np.expand_dims(y, axis) for y, axis in zip(found, (-2, -2, -3), strict=True)])
    hlo = step.hlo()
    assert hlo is not None
    module = parsed_hlo(hlo)
    instructions = [i for computation in module.computations for i in computation.instructions]
    products = [i.shape.element_type for i in instructions if i.opcode in ("convolution", "dot")]
    assert products == 3 * [module.host_program_shape.parameters[0].element_type]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("nothing", ["batch", "inner", "outer"])
def test_convolutions_of_nothing_are_zeros(count: int, nothing: str) -> None:
    """TensorFlow's kernels refuse filters without elements."""
    batch, inner, outer = (0 if name == nothing else 2 for name in ("batch", "inner", "outer"))
    sliding = Sliding((1,) * count, (1,) * count, ((0, 0),) * count)
    x, w = tf.ones([batch, *[4] * count, 1, inner]), tf.ones([*[2] * count, 1, inner, outer])
    dy = tf.ones([batch, *[3] * count, 1, outer])
    y = kernels.convolved(x, w, sliding)
    assert y.shape == dy.shape
    assert not np.any(y)
    assert kernels.image_gradient(dy, w, sliding, [4] * count).shape == x.shape
    dw = kernels.kernel_gradient(x, dy, sliding, [2] * count)
    assert dw.shape == w.shape
    assert not np.any(dw)


WRONG = [  # sizes, taps, strides, padding for which TensorFlow's own kernels were seen to be wrong
    ((9, 1, 1), (1, 1, 1), (3, 1, 1), "SAME"),
    ((1, 1, 9), (1, 1, 1), (1, 1, 3), "SAME"),
    ((12, 4, 12), (2, 2, 2), (4, 1, 4), "SAME"),
    ((8, 8, 8), (1, 1, 1), (4, 4, 4), "SAME"),
    ((6, 3, 9), (1, 2, 1), (1, 3, 5), "VALID"),
    ((3, 3), (1, 2), (1, 2), "VALID"),
    ((5, 3), (2, 2), (1, 3), "VALID"),
    ((8, 12, 5), (1, 4, 3), (1, 1, 3), "VALID"),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("sizes", "taps", "strides", "padding"), WRONG)
def test_windows_that_tensorflow_takes_from_wrong_places(
    sizes: tuple[int, ...], taps: tuple[int, ...], strides: tuple[int, ...], padding: str, dtype: type
) -> None:
    rng = np.random.default_rng(0)
    around = tuple(
        same_padding(n, k, s, 1) if padding == "SAME" else (0, 0) for n, k, s in zip(sizes, taps, strides, strict=True)
    )
    case = Case(2, sizes, taps, Sliding(strides, (1,) * len(sizes), around), (1, 1, 4), padding)
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in (case.image, case.kernel))
    dy = rng.standard_normal(convolved(x.astype(np.float64), w.astype(np.float64), case.sliding).shape)
    check_convolution(case, x, w, dy.astype(dtype))


def computed(case: Case, *given: np.ndarray | tf.Tensor) -> list[tf.Tensor]:
    """A convolution and its gradients, of an image, a kernel and the result's gradient."""
    x, w, dy = map(tf.convert_to_tensor, given)
    return [
        kernels.convolved(x, w, case.sliding),
        kernels.image_gradient(dy, w, case.sliding, case.sizes),
        kernels.kernel_gradient(x, dy, case.sliding, case.taps),
    ]


def check_convolution(case: Case, x: np.ndarray, w: np.ndarray, dy: np.ndarray) -> None:
    """With an axis of groups and, where there is one group, without it, which is to be the same to the bit."""
    found = computed(case, x, w, dy)
    if case.channels[0] == 1:
        without = computed(case, *(np.squeeze(a, axis) for a, axis in ((x, -2), (w, -3), (dy, -2))))
        for whole, y, axis in zip(found, without, (-2, -2, -3), strict=True):
            np.testing.assert_array_equal(np.squeeze(whole.numpy(), axis), y.numpy())
    check_results(case, (x, w, dy), found)


def check_results(case: Case, given: Sequence[np.ndarray], found: Sequence[np.ndarray | tf.Tensor]) -> None:
    """Compares a convolution and its gradients with NumPy's."""
    sliding, wide = case.sliding, [a.astype(np.float64) for a in given]
    wanted = [convolved(*wide[:2], sliding), *convolution_gradients(*wide, sliding)]
    sizes = [np.abs(a) for a in wide]
    magnitudes = [convolved(*sizes[:2], sliding), *convolution_gradients(*sizes, sliding)]
    for what, y, own, magnitude in zip(("result", "image", "kernel"), found, wanted, magnitudes, strict=True):
        assert_rounded_once(np.asarray(y), own, magnitude, f"{what} of {case} in {given[0].dtype}")


def assert_rounded_once(y: np.ndarray, wanted: np.ndarray, magnitude: np.ndarray, what: str) -> None:
    """y is `wanted` summed in float32, or y's own type if that is wider, and rounded.

    Sums of n terms are off by at most n roundings of `magnitude`, the sum of the terms' sizes (Higham 2002, 4.2); and
    there are fewer than 1,500 terms in any of these. Winograd's algorithm for 3x3 filters is off by some more.
    """
    narrow, summed = ml_dtypes.finfo(y.dtype), np.finfo(np.float64 if y.dtype == np.float64 else np.float32)
    bound = np.abs(wanted) * float(narrow.eps) / 2 + 1500 * float(summed.eps) / 2 * magnitude
    bound += float(narrow.smallest_subnormal)
    assert y.shape == wanted.shape, what
    assert np.all(np.abs(y.astype(np.float64) - wanted) <= bound * (1 + 1e-3)), what


@pytest.mark.parametrize("number", COUNTS)
def test_image_gradients_where_not_all_windows_count(number: int) -> None:
    """As in `check_convolution`. An infinite element of the kernel reaches no more than its places."""
    draw, rng = random.Random(number), np.random.default_rng(number)
    for _ in range(number):
        case = Case.drawn(draw, 2, ("SAME", "VALID", "any"), is_dilated=False)
        case = dataclasses.replace(case, channels=(1, *case.channels[1:]))
        x, w = (rng.standard_normal(shape).astype(np.float32) for shape in (case.image, case.kernel))
        dy = rng.standard_normal(convolved(x, w, case.sliding).shape).astype(np.float32)
        wide = [a.astype(np.float64) for a in (x, w, dy)]
        wanted, magnitude = (convolution_gradients(*given, case.sliding)[0] for given in (wide, map(np.abs, wide)))
        counted = draw.choice([{}, {0: tf.ones(dy.shape[1], tf.bool)}])

        @tf.function(autograph=False)
        def image_gradient(
            dy: tf.Tensor, w: tf.Tensor, case: Case = case, counted: Mapping[int, tf.Tensor] = counted
        ) -> tf.Tensor:
            given = tf.squeeze(dy, [-2]), tf.squeeze(w, [-3]), case.sliding, case.sizes, counted
            return kernels.image_gradient(*given)

        found = image_gradient(dy, w).numpy()
        assert_rounded_once(found, np.squeeze(wanted, -2), np.squeeze(magnitude, -2), f"image of {case}")
        w[0, 0, 0, 0] = wide[1][0, 0, 0, 0] = np.inf
        if max(case.sliding.strides) == 1 or counted:  # else some kernels multiply by zeros between windows
            with np.errstate(invalid="ignore"):
                wanted, _ = convolution_gradients(*wide, case.sliding)
            np.testing.assert_array_equal(np.isfinite(image_gradient(dy, w)), np.isfinite(np.squeeze(wanted, -2)))


def test_an_infinite_weight_reaches_its_places_alone_along_a_column() -> None:
    """Of four windows of three elements, the first elements are in the padding and in the first three rows."""
    column = Sliding((1, 1), (1, 1), ((1, 1), (0, 0)))
    w = np.array([np.inf, 1, 1], np.float32).reshape(3, 1, 1, 1)
    dx = kernels.image_gradient(tf.ones([1, 4, 1, 1]), tf.constant(w), column, [4, 1])
    np.testing.assert_array_equal(np.isfinite(dx).ravel(), [False, False, False, True])


@pytest.mark.parametrize("number", SMALL)
@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_pooling_and_its_gradient(count: int, kind: str, number: int) -> None:
    draw, rng = random.Random(count), np.random.default_rng(count)
    for i in range(number):
        case = Case.drawn(draw, count, ("SAME", "VALID"), is_dilated=False)
        dtype = DTYPES[i % len(DTYPES)]
        x = rng.integers(-2, 3, case.image[:-1]).astype(dtype)  # with ties
        wanted = pooled(x.astype(np.float64), case.taps, case.sliding, kind)
        dy = rng.integers(-2, 3, wanted.shape).astype(dtype)
        check_pooling(case, kind, x, dy, wanted)


def check_pooling(case: Case, kind: str, x: np.ndarray, dy: np.ndarray, wanted: np.ndarray) -> None:
    """A mean along one dimension is rounded twice, as a sum and divided; that of several after each of them."""
    names = "dhw"[: len(case.sizes)]

    def program(x: mtf.Tensor, dy: mtf.Tensor) -> list[mtf.Tensor | None]:
        pool = {"max": mtf.max_pool, "avg": mtf.avg_pool}[kind]
        y = pool(x, dict(zip(names, case.taps, strict=True)), case.sliding.strides, case.padding)
        return [y, *mtf.gradients(y, [x], [dy])]

    def shape(a: np.ndarray) -> list[mtf.Dimension]:
        return [mtf.Dimension(name, n) for name, n in zip(("b", *names, "c"), a.shape, strict=True)]

    y, dx = interpret(program, {"x": (shape(x), x), "dy": (shape(dy), dy)}, "one:1").results
    wide, grad = x.astype(np.float64), dy.astype(np.float64)
    unit, roundings = float(ml_dtypes.finfo(x.dtype).eps) / 2, 2 * len(case.sizes) if kind == "avg" else 0
    sizes = pooled(np.abs(wide), case.taps, case.sliding, "avg")
    np.testing.assert_array_less(np.abs(y - wanted), unit * (roundings * sizes * 1.01 + 1e-6), str(case))
    own = pooling_gradient(wide, grad, case.taps, case.sliding, kind)
    sizes = pooling_gradient(wide, np.abs(grad), case.taps, case.sliding, kind)
    roundings = 2 * len(case.sizes)
    np.testing.assert_array_less(np.abs(dx - own), unit * (roundings * sizes * 1.01 + 1e-6), str(case))


@pytest.mark.parametrize("layout", ["", "n:all"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_running_sums(dtype: type, layout: str) -> None:
    """Of numbers that in 16 bits would change the sum no more after some hundreds."""
    x = np.random.default_rng(0).uniform(0.5, 1.5, [4, 2048]).astype(dtype)
    program = lambda x: [mtf.cumsum(x, "n"), mtf.cumsum(x, "n", reverse=True)]  # noqa: E731
    done = interpret(program, {"x": ("b:4 n:2048", x)}, "all:4", layout).results
    wide = x.astype(np.float64)
    for y, wanted in zip(done, (np.cumsum(wide, 1), np.cumsum(wide[:, ::-1], 1)[:, ::-1]), strict=True):
        assert_rounded_once(y, wanted, 2 * wanted, layout)
