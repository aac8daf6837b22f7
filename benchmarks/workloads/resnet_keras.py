"""ResNet-50's training step with Keras layers, on one device."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from benchmarks.measuring.side_by_side import Step
from benchmarks.workloads.resnet_sizes import (
    BATCH_NORM_MOMENTUM,
    CHANNELS,
    CLASSES,
    EPSILON,
    MOMENTUM,
    RATE,
    SIDE,
    STEM,
    Convolution,
    blocks,
    convolutions,
    examples,
    initial_weights,
)


def in_keras() -> Step:
    layers = keras.layers
    kernels = {
        own.name: layers.Conv2D(own.outs, own.size, own.stride, padding="same", use_bias=False)
        for own in convolutions()
    }
    norms = {
        own.name: layers.BatchNormalization(momentum=BATCH_NORM_MOMENTUM, epsilon=EPSILON) for own in convolutions()
    }
    classifier = layers.Dense(CLASSES)

    def convolved(x: Any, own: Convolution) -> Any:
        return norms[own.name](kernels[own.name](x))

    images = keras.Input([SIDE, SIDE, CHANNELS])
    x = layers.MaxPooling2D(3, 2, padding="same")(layers.ReLU()(convolved(images, STEM)))
    for block in blocks():
        y = x
        for own in block.convolutions[:-1]:
            y = layers.ReLU()(convolved(y, own))
        y = convolved(y, block.convolutions[-1])
        x = layers.ReLU()(layers.Add()([y, x if block.shortcut is None else convolved(x, block.shortcut)]))
    model = keras.Model(images, classifier(layers.GlobalAveragePooling2D()(x)))
    weights = initial_weights()
    for name, kernel in kernels.items():
        kernel.set_weights([weights[f"{name}/conv2d/kernel"]])
        scale, bias = (weights[f"{name}/batch_norm/{part}"] for part in ("scale", "bias"))
        norms[name].set_weights([scale, bias, np.zeros_like(scale), np.ones_like(scale)])
    classifier.set_weights([weights["logits/kernel"], weights["logits/bias"]])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(RATE, momentum=MOMENTUM), loss)
    given, labels = map(tf.constant, examples())

    def step() -> float:
        model.reset_metrics()
        return float(model.train_on_batch(given, labels))

    return step
