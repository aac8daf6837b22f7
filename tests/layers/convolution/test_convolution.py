from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError

BATCH, CHANNELS, OUT = mtf.Dimension("batch", 2), mtf.Dimension("channels", 2), mtf.Dimension("out", 4)
DEPTH, HEIGHT, WIDTH = mtf.Dimension("depth", 4), mtf.Dimension("height", 4), mtf.Dimension("width", 8)
SEQUENCE, IMAGE = [BATCH, WIDTH, CHANNELS], [BATCH, HEIGHT, WIDTH, CHANNELS]
VOLUME = [BATCH, DEPTH, HEIGHT, WIDTH, CHANNELS]
LAYOUTS = [
    "batch:rows;width:cols",
    "height:rows;width:cols",
    "channels:rows;out:cols",
    "width:rows+cols",
    "batch:cols;out:rows",
    "channels:cols;height:rows",
]


def test_convolutions_are_tensorflows(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    narrow = mtf.Dimension("channels", 4)

    def layers(image: mtf.Tensor, volume: mtf.Tensor, sequence: mtf.Tensor) -> list[mtf.Tensor]:
        return [
            mtf.layers.conv1d(sequence, OUT, name="one", use_bias=True, activation=mtf.tanh),
            mtf.layers.conv2d(image, OUT, (3, 1), (2, 1), name="two"),
            mtf.layers.conv2d(image, narrow, 3, name="clash"),
            mtf.layers.conv3d(volume, OUT, 2, strides=(1, 2, 1), name="three", activation="sigmoid"),
            mtf.layers.conv2d_transpose(image, OUT, name="two_transpose", use_bias=True),
            mtf.layers.conv3d_transpose(volume, OUT, name="three_transpose"),
        ]

    def formulas(
        variables: dict[str, tf.Tensor], image: tf.Tensor, volume: tf.Tensor, sequence: tf.Tensor
    ) -> list[tf.Tensor]:
        kernels = {name.removesuffix("/kernel"): kernel for name, kernel in variables.items()}
        return [
            tf.tanh(tf.nn.conv1d(sequence, kernels["one"], 1, "SAME") + variables["one/bias"]),
            tf.nn.conv2d(image, kernels["two"], (2, 1), "SAME"),
            tf.nn.conv2d(image, kernels["clash"], 1, "SAME"),
            tf.sigmoid(tf.nn.conv3d(volume, kernels["three"], (1, 1, 2, 1, 1), "SAME")),
            tf.nn.conv2d_transpose(image, kernels["two_transpose"], [2, 8, 16, 4], 2) + variables["two_transpose/bias"],
            tf.nn.conv3d_transpose(volume, kernels["three_transpose"], [2, 8, 8, 16, 4], 2),
        ]

    inputs = {"image": normal(IMAGE), "volume": normal(VOLUME, 1), "sequence": normal(SEQUENCE, 2)}
    done = check_layers(layers, formulas, inputs, LAYOUTS)
    assert {name: value.shape for name, value in done.variables.items()} == {
        "one/kernel": (3, 2, 4),
        "one/bias": (4,),
        "two_transpose/bias": (4,),
        "two/kernel": (3, 1, 2, 4),
        "clash/kernel": (3, 3, 2, 4),
        "three/kernel": (2, 2, 2, 2, 4),
        "two_transpose/kernel": (2, 2, 4, 2),
        "three_transpose/kernel": (2, 2, 2, 4, 2),
    }


def test_separable_convolution_is_the_formula(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    windows = {"around": (-1, 1), "before": (-3, 0), "after": (2, 3)}

    def layers(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.layers.separable_conv1d(x, OUT, *window, name=name) for name, window in windows.items()]

    def formulas(variables: dict[str, tf.Tensor], x: tf.Tensor) -> list[tf.Tensor]:
        found = []
        for name, (first, last) in windows.items():
            padded = tf.pad(x, [[0, 0], [3, 3], [0, 0]])
            kernel = variables[f"{name}/depthwise_kernel"]
            terms = [padded[:, 3 + p : 11 + p] * kernel[p - first] for p in range(first, last + 1)]
            found.append(tf.add_n(terms) @ variables[f"{name}/pointwise/kernel"] + variables[f"{name}/pointwise/bias"])
        return found

    check_layers(layers, formulas, {"x": normal(SEQUENCE)}, LAYOUTS[:4])


def test_fans_are_those_of_whole_windows() -> None:
    inner, outer = mtf.Dimension("inner", 32), mtf.Dimension("outer", 64)
    fan_out = mtf.layers.VarianceScalingInitializer(mode="fan_out", distribution="uniform")

    def program(mesh: mtf.Mesh) -> None:
        image = mtf.zeros(mesh, [BATCH, HEIGHT, WIDTH, inner])
        for name, layer in (("plain", mtf.layers.conv2d), ("transpose", mtf.layers.conv2d_transpose)):
            layer(image, outer, 3, 1, name=f"{name}_in")
            layer(image, outer, 3, 1, filter_initializer=fan_out, name=f"{name}_out")

    graph = mtf.Graph()
    with graph:
        program(mtf.Mesh(graph))
    names = list(graph.variables)
    stddevs = {name: graph.variables[name].spec.initializer for name in names}  # type: ignore[attr-defined]
    for name in ("plain", "transpose"):
        assert stddevs[f"{name}_in/kernel"].stddev == pytest.approx((9 * 32) ** -0.5)
        assert stddevs[f"{name}_out/kernel"].maxval == pytest.approx((3 / (9 * 64)) ** 0.5)


def test_bad_arguments(build: Callable[..., mtf.Graph]) -> None:
    with pytest.raises(ShapeError, match=r"filter_size must be one positive integer, or 2, .* and is \(3, 3, 3\)"):
        build(lambda x: mtf.layers.conv2d(x, OUT, (3, 3, 3)), IMAGE)
    with pytest.raises(ShapeError, match=r"stride must be one positive integer, or 1, .* and is 0"):
        build(lambda x: mtf.layers.conv1d(x, OUT, stride=0), SEQUENCE)
    with pytest.raises(ShapeError, match=r"\[batch:2 channels:2\] must have height, width and channels, in this order"):
        build(lambda x: mtf.layers.conv2d(x, OUT), [BATCH, CHANNELS])
    with pytest.raises(ShapeError, match=r"the window from 1 to -1 is empty"):
        build(lambda x: mtf.layers.separable_conv1d(x, OUT, 1, -1), SEQUENCE)
    with pytest.raises(ShapeError, match=r"\[channels:2\] must have a length and channels"):
        build(lambda x: mtf.layers.separable_conv1d(x, OUT), [CHANNELS])
