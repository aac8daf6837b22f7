"""The convolutions, the initial weights and the batch for all programs of ResNet-50's step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
from numpy.typing import DTypeLike

BATCH, SIDE, CHANNELS, CLASSES, RATE, MOMENTUM = 16, 64, 3, 10, 0.01, 0.9
BATCH_NORM_MOMENTUM, EPSILON = 0.9, 1e-5
STAGES = (3, 4, 6, 3)
DTYPE: DTypeLike = np.float32
"""The dtype of images and activations. Weights, statistics and losses are in float32."""


@dataclasses.dataclass(frozen=True)
class Convolution:
    """A convolution of `size` x `size`, without a bias, followed by batch normalization."""

    name: str
    size: int
    stride: int
    ins: int
    outs: int


@dataclasses.dataclass(frozen=True)
class Block:
    """A bottleneck block. It has a `shortcut` if x cannot be added unchanged."""

    convolutions: tuple[Convolution, Convolution, Convolution]
    shortcut: Convolution | None


STEM = Convolution("stem", 7, 2, CHANNELS, 64)


def blocks() -> Iterator[Block]:
    ins = 64
    for stage, number in enumerate(STAGES):
        width = 64 * 2**stage
        for block in range(number):
            stride, scope = (2 if stage and not block else 1), f"stage_{stage}/block_{block}"
            outs = 4 * width
            yield Block(
                (
                    Convolution(f"{scope}/reduce", 1, 1, ins, width),
                    Convolution(f"{scope}/convolve", 3, stride, width, width),
                    Convolution(f"{scope}/expand", 1, 1, width, outs),
                ),
                None if block else Convolution(f"{scope}/shortcut", 1, stride, ins, outs),
            )
            ins = outs


def convolutions() -> Iterator[Convolution]:
    yield STEM
    for block in blocks():
        yield from block.convolutions
        if block.shortcut is not None:
            yield block.shortcut


def initial_weights() -> dict[str, np.ndarray]:
    """The initial values of all trained variables, by the model's names."""
    generator, found = np.random.default_rng(0), {}
    for each in convolutions():
        shape, deviation = [each.size, each.size, each.ins, each.outs], (2 / (each.size**2 * each.outs)) ** 0.5
        found[f"{each.name}/conv2d/kernel"] = generator.normal(0, deviation, shape).astype(np.float32)
        scale = 0.0 if each.name.endswith("expand") else 1.0
        found[f"{each.name}/batch_norm/scale"] = np.full([each.outs], scale, np.float32)
        found[f"{each.name}/batch_norm/bias"] = np.zeros([each.outs], np.float32)
    found["logits/kernel"] = generator.normal(0, 0.01, [each.outs, CLASSES]).astype(np.float32)
    found["logits/bias"] = np.zeros([CLASSES], np.float32)
    return found


def examples() -> tuple[np.ndarray, np.ndarray]:
    """Images [batch, height, width, channels] and labels [batch]."""
    generator = np.random.default_rng(1)
    images = generator.normal(size=[BATCH, SIDE, SIDE, CHANNELS]).astype(DTYPE)
    return images, generator.integers(0, CLASSES, [BATCH], np.int32)
