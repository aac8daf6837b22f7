from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret, rounding_bound
from tests.house.sharpest import sharpest

BATCH, LENGTH, D_MODEL = mtf.Dimension("batch", 4), mtf.Dimension("length", 6), mtf.Dimension("d_model", 8)
GROUPS = mtf.Dimension("groups", 2)
LAYOUTS = [
    "batch:rows",
    "d_model:cols",
    "length:rows;d_model:cols",
    "batch:rows+cols",
    "d_model:cols+rows",
    "batch:cols;length:rows",
]
EPSILON = 1e-3


def uneven(mesh: mtf.Mesh, name: str, shape: list[mtf.Dimension]) -> None:
    """Makes a variable before its layer does, so that it starts neither at 0 nor at 1."""
    mtf.get_variable(
        mesh, name, shape, initializer=1.0 + np.arange(mtf.Shape(shape).size).reshape([d.size for d in shape])
    )


def test_layer_and_rms_norm_are_the_formulas(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    def layers(x: mtf.Tensor) -> list[mtf.Tensor]:
        uneven(x.mesh, "one/scale", [D_MODEL])
        uneven(x.mesh, "one/bias", [D_MODEL])
        uneven(x.mesh, "two/scale", [D_MODEL, LENGTH])
        uneven(x.mesh, "rms/scale", [D_MODEL])
        return [
            mtf.layers.layer_norm(x, D_MODEL, EPSILON, name="one"),
            mtf.layers.layer_norm(x, [D_MODEL, LENGTH], EPSILON, use_bias=False, name="two"),
            mtf.layers.rms_norm(x, D_MODEL, EPSILON, name="rms"),
            mtf.layers.rms_norm(x, [LENGTH], EPSILON, use_scale=False, name="bare"),
        ]

    def formulas(variables: dict[str, tf.Tensor], x: tf.Tensor) -> list[tf.Tensor]:
        def standard(*axes: int) -> tf.Tensor:
            mean, variance = tf.nn.moments(x, axes, keepdims=True)
            return (x - mean) / tf.sqrt(variance + EPSILON)

        def over_rms(axis: int) -> tf.Tensor:
            return x / tf.sqrt(tf.reduce_mean(x * x, axis, keepdims=True) + EPSILON)

        return [
            standard(2) * variables["one/scale"] + variables["one/bias"],
            standard(1, 2) * tf.transpose(variables["two/scale"]),
            over_rms(2) * variables["rms/scale"],
            over_rms(1),
        ]

    _, x = normal([BATCH, LENGTH, D_MODEL])
    done = check_layers(layers, formulas, {"x": ([BATCH, LENGTH, D_MODEL], x + 0.5)}, LAYOUTS)
    assert set(done.variables) == {"one/scale", "one/bias", "two/scale", "rms/scale"}


def test_statistics_of_narrow_types_are_taken_in_float32() -> None:
    narrow = tf.cast(100 + 3 * np.random.default_rng(0).normal(size=(4, 8)), tf.bfloat16)
    wide = tf.cast(narrow, tf.float64).numpy()
    standard = (wide - wide.mean(-1, keepdims=True)) / wide.std(-1, keepdims=True)

    def layers(x: mtf.Tensor) -> list[mtf.Tensor]:
        narrow = mtf.to_bfloat16(x)
        ys = [mtf.layers.layer_norm(narrow, D_MODEL), mtf.layers.rms_norm(narrow, D_MODEL)]
        assert [y.dtype for y in ys] == [tf.bfloat16] * 2
        return [mtf.to_float(y) for y in ys]

    # The mean of values of 100, in float32, is subtracted before they are divided by a deviation of 3.
    mean_over_bfloat16 = 100 / 3 * rounding_bound(tf.float32, D_MODEL.size) / rounding_bound(tf.bfloat16, 1)
    inputs = {"x": ([BATCH, D_MODEL], tf.cast(narrow, tf.float32).numpy())}
    for layout in ("", "d_model:rows+cols"):
        by_layer, by_rms = interpret(layers, inputs, "rows:2;cols:2", layout).results
        assert_close(by_layer, standard, terms=1, magnitude=np.abs(standard) + mean_over_bfloat16, dtype="bfloat16")
        assert_close(by_rms, wide / np.sqrt((wide**2).mean(-1, keepdims=True)), terms=1, dtype="bfloat16")


BATCH_LAYOUTS = [
    "batch:rows",
    "batch:rows;channels:cols",
    "height:rows;width:cols",
    "channels:rows+cols",
    "batch:cols+rows",
    "batch:rows;height:cols",
]
HEIGHT, WIDTH, CHANNELS = mtf.Dimension("height", 2), mtf.Dimension("width", 6), mtf.Dimension("channels", 4)
IMAGE = [BATCH, HEIGHT, WIDTH, CHANNELS]


def test_batch_norm_in_training_is_the_formula(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    def layers(x: mtf.Tensor) -> list[mtf.Tensor]:
        for name in ("usual", "first"):
            for parameter in ("scale", "bias"):
                uneven(x.mesh, f"{name}/{parameter}", [CHANNELS] if name == "usual" else [WIDTH, HEIGHT])
        return [
            mtf.layers.batch_norm(x, True, 0.75, EPSILON, name="usual"),
            mtf.layers.batch_norm(x, True, 0.75, EPSILON, channel_dims=[WIDTH, HEIGHT], name="first"),
            mtf.layers.batch_norm(x, True, 0.75, EPSILON, init_zero=True, name="nothing"),
        ]

    def formulas(variables: dict[str, tf.Tensor], x: tf.Tensor) -> list[tf.Tensor]:
        def standard(*axes: int) -> tf.Tensor:
            mean, variance = tf.nn.moments(x, axes, keepdims=True)
            return (x - mean) / tf.sqrt(variance + EPSILON)

        usual, first = ([variables[f"{name}/{p}"] for p in ("scale", "bias")] for name in ("usual", "first"))
        scale, bias = (tf.transpose(p)[None, :, :, None] for p in first)
        return [
            standard(0, 1, 2) * usual[0] + usual[1],
            standard(0, 3) * scale + bias,
            standard(0, 1, 2) * variables["nothing/scale"] + variables["nothing/bias"],
        ]

    _, x = normal(IMAGE)
    x = 2 * x + 1
    done = check_layers(layers, formulas, {"x": (IMAGE, x)}, BATCH_LAYOUTS)
    assert not done.results[0][2].any()
    assert {name for name in done.variables if "nothing" in name} == {
        f"nothing/{name}" for name in ("scale", "bias", "moving_mean", "moving_variance")
    }
    assert_close(done.variables["usual/moving_mean"], 0.25 * x.mean((0, 1, 2)), terms=x.size // 4)
    # As published: the moving average is of the unbiased variance.
    unbiased = x.var((0, 1, 2), ddof=1)
    assert_close(done.variables["usual/moving_variance"], 0.75 + 0.25 * unbiased, terms=2 * (x.size // 4))


def test_groups_of_a_batch_have_statistics_of_their_own(
    check_layers: Callable[..., Any], normal: Callable[..., Any]
) -> None:
    """Groups of two neighbours, under layouts that split groups or keep them whole."""

    def layers(x: mtf.Tensor) -> list[mtf.Tensor]:
        for parameter in ("scale", "bias"):
            uneven(x.mesh, f"pairs/{parameter}", [CHANNELS])
        return [mtf.layers.batch_norm(x, True, 0.75, EPSILON, name="pairs", group_size=2)]

    def formulas(variables: dict[str, tf.Tensor], x: tf.Tensor) -> list[tf.Tensor]:
        grouped = tf.reshape(x, [-1, 2, *x.shape[1:]])
        mean, variance = tf.nn.moments(grouped, [1, 2, 3], keepdims=True)
        normalized = tf.reshape((grouped - mean) / tf.sqrt(variance + EPSILON), x.shape)
        return [normalized * variables["pairs/scale"] + variables["pairs/bias"]]

    _, x = normal(IMAGE)
    x = 2 * x + 1
    layouts = ["batch:rows;batch_groups:rows", "batch:rows+cols;batch_groups:rows;batch_group:cols", "channels:cols"]
    done = check_layers(layers, formulas, {"x": (IMAGE, x)}, layouts)
    groups = x.reshape(-1, 2, *x.shape[1:])
    assert_close(done.variables["pairs/moving_mean"], 0.25 * groups.mean((1, 2, 3)).mean(0), terms=x.size // 4)
    unbiased = groups.var((1, 2, 3), ddof=1).mean(0)
    assert_close(done.variables["pairs/moving_variance"], 0.75 + 0.25 * unbiased, terms=2 * (x.size // 4))


def test_a_group_on_some_cores_is_summed_over_these_cores_alone() -> None:
    """The batch is over 4x2 cores, and a group over 2: its three sums are along one axis. Those of scale and bias, of
    the averages and of the loss are over all."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor | None]:
        y = mtf.layers.batch_norm(x, True, 0.9, group_size=4)
        return mtf.gradients([mtf.reduce_sum(mtf.square(y) * x)], [x])

    rules = "batch:data.0+data.1;batch_groups:data.0;batch_group:data.1"
    cores = mtf.PlanMeshImpl("data:8", rules, axis_parts="data:4x2")
    report = mtf.function(program, cores, {"x": mtf.TensorSpec("batch:16 length:6 d_model:8")}).report()
    over_batches = [c for c in report.collectives if c.axes == ("data.1",)]
    assert [c.kind for c in over_batches] == ["all_reduce"] * 3


def test_groups_that_do_not_divide_a_batch() -> None:
    def program(size: Any, channels: Any) -> Callable[..., mtf.Tensor]:
        return lambda x: mtf.layers.batch_norm(x, True, 0.9, channel_dims=channels, group_size=size)

    x = {"x": mtf.TensorSpec("batch:6 channels:4")}
    for size in (4, 0, True, 2.0):
        with pytest.raises(ShapeError, match=rf"batch_norm: group_size must divide batch:6, and is {size}"):
            mtf.testing.build(program(size, None), x)
    with pytest.raises(ShapeError, match='the first dimension, "batch", is cut into groups, so it cannot be a channel'):
        mtf.testing.build(program(2, "batch"), x)


def test_second_derivatives_of_batch_norm() -> None:
    """As a penalty on gradients takes them: by the input, and by the scale."""
    rng = np.random.default_rng(0)
    x, t = rng.normal(size=(4, 6, 8)), rng.normal(size=(4, 6, 8))

    def program(mesh: mtf.Mesh, x: mtf.Tensor, t: mtf.Tensor) -> list[mtf.Tensor | None]:
        uneven(mesh, "batch_norm/scale", [D_MODEL])
        y = mtf.layers.batch_norm(x, True, 0.9, EPSILON, name="batch_norm")
        (dx,) = mtf.gradients([mtf.reduce_sum(mtf.square(y) * t)], [x])
        scale = mesh.graph.variables["batch_norm/scale"].value
        return mtf.gradients([mtf.reduce_sum(mtf.square(dx))], [x, scale])

    wide, scale = tf.constant(x), tf.constant(1.0 + np.arange(8.0))
    with tf.GradientTape() as outer:
        outer.watch([wide, scale])
        with tf.GradientTape() as inner:
            inner.watch(wide)
            mean, variance = tf.nn.moments(wide, [0, 1])
            loss = tf.reduce_sum(tf.square((wide - mean) * tf.math.rsqrt(variance + EPSILON) * scale) * t)
        penalty = tf.reduce_sum(tf.square(inner.gradient(loss, wide)))
    expected = outer.gradient(penalty, [wide, scale])
    inputs = {"x": ("batch:4 length:6 d_model:8", x), "t": ("batch:4 length:6 d_model:8", t)}
    for layout in ["", *LAYOUTS]:
        found = interpret(program, inputs, "rows:2;cols:2", layout).results
        for own, other in zip(found, expected, strict=True):
            # Sums over the batch, of sums over it, of products of up to six factors.
            assert_close(own, other, terms=(24 * 6, 24), magnitude=float(np.abs(other).max()))


def test_a_scale_and_a_bias_may_be_over_other_dimensions() -> None:
    """Of the dimensions that have statistics, the scale is over one, and the bias over another, or over none."""
    rng = np.random.default_rng(0)
    x, scale = rng.normal(size=(4, 2, 8)).astype(np.float32), rng.normal(size=8).astype(np.float32)

    def program(x: mtf.Tensor, scale: mtf.Tensor) -> list[mtf.Tensor | None]:
        found = []
        for dims in ([GROUPS], []):
            bias = mtf.ones(x.mesh, dims)
            y, _, _ = mtf.layers.normalized_batch(x, scale, bias, EPSILON, [GROUPS, D_MODEL])
            found += mtf.gradients([mtf.reduce_sum(mtf.square(y))], [scale, bias])
        return found

    inputs = {"x": ("batch:4 groups:2 d_model:8", x), "scale": ("d_model:8", scale)}
    found = interpret(program, inputs, "rows:2;cols:2", "batch:rows;d_model:cols").results
    normed = (x - x.mean(0)) / np.sqrt(x.var(0) + EPSILON)
    slope = 2.0 * (normed * scale + 1.0)
    of_scale, of_bias = (slope * normed).sum((0, 1)), slope.sum((0, 2))
    for own, other in zip(found, [of_scale, of_bias, of_scale, of_bias.sum()], strict=True):
        assert_close(own, other, terms=(64, 4, 4), magnitude=float(np.abs(slope).max() * 4))


def test_statistics_of_a_batch_and_their_gradient_take_three_reductions() -> None:
    """Of the mean, the variance, and one of both sums in the gradient, from which those of scale and bias come, too."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor | None]:
        y = mtf.layers.batch_norm(x, is_training=True, momentum=0.9)
        loss = mtf.reduce_sum(mtf.square(y) * x)
        return mtf.gradients([loss], [x, *(v.value for v in x.graph.trainable_variables)])

    inputs = {"x": mtf.TensorSpec([BATCH, LENGTH, D_MODEL])}
    report = mtf.function(program, mtf.PlanMeshImpl("rows:2", "batch:rows"), inputs).report()
    assert [c.kind for c in report.collectives] == ["all_reduce"] * 3


def test_batch_norm_moves_at_every_call_and_evaluates_with_the_averages(normal: Callable[..., Any]) -> None:
    _, x = normal(IMAGE)

    def program(x: mtf.Tensor) -> mtf.Tensor:
        for shift in (1.0, 3.0):
            mtf.layers.batch_norm(x + shift, True, 0.5, name="norm")
        y = mtf.layers.batch_norm(x, False, 0.5, EPSILON, name="norm")
        trainable = {v.full_name for v in x.graph.trainable_variables}
        assert trainable == {"norm/scale", "norm/bias"}
        return y

    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2), ddof=1)
    moving_mean = 0.5 * 0.5 * (mean + 1) + 0.5 * (mean + 3)
    moving_variance = 0.25 + 0.75 * variance
    for layout in ("", *BATCH_LAYOUTS[:3]):
        done = interpret(program, {"x": (IMAGE, x)}, "rows:2;cols:2", layout)
        assert_close(done.variables["norm/moving_mean"], moving_mean, terms=x.size // 4)
        assert_close(done.variables["norm/moving_variance"], moving_variance, terms=2 * (x.size // 4))
        expected = (x - moving_mean) / np.sqrt(moving_variance + EPSILON)
        assert_close(done.results, expected, terms=(2 * (x.size // 4), 2 * FUNCTION_TERMS))


def test_each_part_of_a_batch_has_statistics_of_its_own(normal: Callable[..., Any]) -> None:
    _, x = normal([BATCH, CHANNELS])

    def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        y = mtf.layers.batch_norm(features["x"], True, 0.5, EPSILON, name="norm")
        return {"y": y, "loss": mtf.reduce_sum(y)}

    def program(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.serialize_training_step({"x": x}, model, BATCH, num_splits=2)[1]["y"]

    parts = [x[::2], x[1::2]]  # every second example
    expected = np.zeros_like(x)
    moving_mean = np.zeros(4)
    for number, part in enumerate(parts):
        expected[number::2] = (part - part.mean(0)) / np.sqrt(part.var(0) + EPSILON)
        moving_mean = 0.5 * moving_mean + 0.5 * part.mean(0)
    for layout in ("", "batch:rows;channels:cols"):
        done = interpret(program, {"x": ([BATCH, CHANNELS], x)}, "rows:2;cols:2", layout)
        assert_close(done.results, expected, terms=(2 * 4, 2 * FUNCTION_TERMS))
        assert_close(done.variables["norm/moving_mean"], moving_mean, terms=8)


def test_evaluation_assigns_nothing(build: Callable[..., mtf.Graph]) -> None:
    def assigned(is_training: bool) -> int:
        graph = build(lambda x: mtf.layers.batch_norm(x, is_training, 0.9), IMAGE)
        return sum(operation.has_side_effect for operation in graph.operations)

    assert (assigned(True), assigned(False)) == (2, 0)


def test_moving_averages_are_wide_whatever_the_variables_are() -> None:
    graph = mtf.Graph(variable_dtype=mtf.VariableDType(tf.bfloat16))
    with graph:
        x = mtf.zeros(mtf.Mesh(graph), IMAGE, tf.bfloat16)
        assert mtf.layers.batch_norm(x, True, 0.99, name="norm").dtype == tf.bfloat16
    dtypes = {name: variable.outputs[0].dtype.name for name, variable in graph.variables.items()}
    assert dtypes == {
        "norm/moving_mean": "float32",
        "norm/moving_variance": "float32",
        "norm/scale": "bfloat16",
        "norm/bias": "bfloat16",
    }


def test_a_dimension_that_is_not_there(build: Callable[..., mtf.Graph]) -> None:
    with pytest.raises(ShapeError, match=r'no dimension "d_modl" .*did you mean "d_model"\?'):
        build(lambda x: mtf.layers.layer_norm(x, mtf.Dimension("d_modl", 8)), [BATCH, D_MODEL])
    with pytest.raises(ShapeError, match=r'dimension "d_model" has size 8 .* not 4'):
        build(lambda x: mtf.layers.rms_norm(x, mtf.Dimension("d_model", 4)), [BATCH, D_MODEL])
    with pytest.raises(ShapeError, match=r'no dimension "channel" .*did you mean "channels"\?'):
        build(lambda x: mtf.layers.batch_norm(x, True, 0.9, channel_dims=mtf.Dimension("channel", 4)), IMAGE)
    with pytest.raises(ShapeError, match=r'bias \[length:6\] has dimension "length", which is not in kept_dims \[d_mo'):
        build(
            lambda x: mtf.layers.normalized_batch(
                x, mtf.ones(x.mesh, [D_MODEL]), mtf.zeros(x.mesh, [LENGTH]), EPSILON, D_MODEL
            )[0],
            [BATCH, LENGTH, D_MODEL],
        )


def test_bad_types_and_momentum(build: Callable[..., mtf.Graph]) -> None:
    with pytest.raises(DtypeError, match=r"x is int32; convert it with mtf\.cast"):
        build(lambda x: mtf.layers.layer_norm(x, D_MODEL), [BATCH, D_MODEL], tf.int32)
    with pytest.raises(GraphError, match=r"momentum must be .* and is 1\.5"):
        build(lambda x: mtf.layers.batch_norm(x, True, 1.5), IMAGE)
    with pytest.raises(GraphError, match=r"momentum must be .* and is 'a'"):
        build(lambda x: mtf.layers.batch_norm(x, True, "a"), IMAGE)  # type: ignore[arg-type]


@pytest.mark.parametrize("epsilon", [-1e-3, float("nan"), float("inf"), "1e-3"])
def test_an_epsilon_below_zero_is_refused(build: Callable[..., mtf.Graph], epsilon: float) -> None:
    """The root of a variance below 0 would be a NaN."""
    layers: list[Callable[[mtf.Tensor], mtf.Tensor]] = [
        lambda x: mtf.layers.layer_norm(x, x.shape[-1:], epsilon),
        lambda x: mtf.layers.rms_norm(x, x.shape[-1:], epsilon),
        lambda x: mtf.layers.batch_norm(x, True, 0.9, epsilon),
        lambda x: mtf.layers.batch_norm(x, False, 0.9, epsilon),
        lambda x: mtf.layers.normalized_batch(
            x, x.mean("batch height width"), x.mean("batch height width"), epsilon, x.shape[-1:]
        )[0],
        lambda x: mtf.layers.group_norm(x, 1, epsilon=epsilon),
        lambda x: mtf.layers.instance_norm(x, epsilon=epsilon),
        lambda x: mtf.layers.spectral_norm(x, x.shape[-1:], True, epsilon=epsilon),
    ]
    for layer in layers:
        with pytest.raises(GraphError, match=rf"epsilon must be a number, 0 or more, and is {epsilon!r}"):
            build(layer, IMAGE)


MANY, FEATURES = mtf.Dimension("many", 49), mtf.Dimension("features", 12)
SPLITS = [("a:1", ""), ("a:2", "many:a"), ("a:4", "features:a"), ("a:2;b:3", "many:a;features:b")]


@pytest.mark.parametrize(("mesh_shape", "layout"), sharpest(SPLITS, SPLITS[-1:]))
@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16])
def test_equal_numbers_have_no_variance(dtype: tf.DType, mesh_shape: str, layout: str) -> None:
    """Their rounded mean is off by some unit in the last place, which over the root of a small epsilon is large."""

    def layers(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [
            mtf.layers.layer_norm(x, FEATURES, 1e-9),
            mtf.layers.layer_norm(x, [MANY, FEATURES], 1e-9),
            mtf.layers.batch_norm(x, True, 0.0, channel_dims=FEATURES, name="bn"),
        ]

    for value in (255.0, 0.1, 1e4 / 3, 1e-6):
        x = np.full([49, 12], value, dtype.as_numpy_dtype)
        done = interpret(layers, {"x": ([MANY, FEATURES], x)}, mesh_shape, layout)
        for y in (*done.results, done.variables["bn/moving_variance"]):
            assert not y.any()
        np.testing.assert_array_equal(done.variables["bn/moving_mean"], x[0].astype(np.float32))


@pytest.mark.parametrize(("mesh_shape", "layout"), sharpest(SPLITS, SPLITS[-1:]))
def test_small_deviations_from_a_large_mean(mesh_shape: str, layout: str) -> None:
    """Neighbouring float32 near 10^4 are a tenth of the deviation apart: a mean that is one of them is too far off.
    The numbers themselves are exact, so that the rest is as precise as of any."""
    rng = np.random.default_rng(0)
    x = (1e4 + 1e-2 * rng.standard_normal([49, 12])).astype(np.float32)
    weights = rng.standard_normal([49, 12]).astype(np.float32)

    def layers(x: mtf.Tensor, weights: mtf.Tensor) -> list[Any]:
        found: list[Any] = []
        for layer in (
            lambda: mtf.layers.layer_norm(x, FEATURES, 1e-9),
            lambda: mtf.layers.batch_norm(x, True, 0.9, channel_dims=FEATURES),
        ):
            y = layer()
            parameters = [v.outputs[0] for v in x.mesh.graph.trainable_variables[-2:]]
            found += [y, *mtf.gradients([mtf.reduce_sum(y * weights)], [x, *parameters])]
        return found

    shape = [MANY, FEATURES]
    actual = interpret(layers, {"x": (shape, x), "weights": (shape, weights)}, mesh_shape, layout).results
    expected = []
    for axis in (1, 0):
        wide, dy = x.astype(np.float64), weights.astype(np.float64)
        centred = wide - wide.mean(axis, keepdims=True)
        inverse = 1 / np.sqrt((centred**2).mean(axis, keepdims=True) + 1e-9)
        y = centred * inverse
        dx = inverse * (dy - dy.mean(axis, keepdims=True) - y * (dy * y).mean(axis, keepdims=True))
        expected += [y, dx, (dy * y).sum(0), dy.sum(0)]
    for result, wanted in zip(actual, expected, strict=True):
        assert_close(result, wanted, terms=(49, 49, 49, 3 * FUNCTION_TERMS), magnitude=4 * np.abs(wanted).max())
