"""Recurrent layers against Keras' with the same weights, with gradients, under layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import interpret, plan
from tests.house.keras_module import keras

BATCH, LENGTH = mtf.Dimension("batch", 4), mtf.Dimension("length", 3)
D_IN, HIDDEN = mtf.Dimension("d_in", 4), mtf.Dimension("hidden", 2)


def keras_weights(variables: dict[str, tf.Tensor], scope: str) -> list[tf.Tensor]:
    """Our weights as Keras has them: gates and units are one dimension, and biases of a GRU are stacked."""
    kernel, recurrent = (variables[f"{scope}/{name}"] for name in ("input/kernel", "recurrent_kernel"))
    biases = [variables[f"{scope}/{name}"] for name in ("bias", "recurrent_bias") if f"{scope}/{name}" in variables]
    flat = [tf.reshape(bias, [-1]) for bias in biases]
    return [
        *(tf.reshape(w, [w.shape[0], -1]) for w in (kernel, recurrent)),
        flat[0] if len(flat) == 1 else tf.stack(flat),
    ]


def keras_layer(kind: type[Any], weights: list[tf.Tensor], *inputs: Any, **options: Any) -> list[tf.Tensor]:
    layer = kind(HIDDEN.size, return_sequences=True, return_state=True, unroll=True, **options)
    layer.build((BATCH.size, LENGTH.size, D_IN.size))
    found, _ = layer.stateless_call(weights, layer.non_trainable_variables, inputs[0], initial_state=inputs[1:] or None)
    return list(found)


def test_gru_and_lstm_are_keras(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    def layers(x: mtf.Tensor, h: mtf.Tensor) -> list[mtf.Tensor]:
        outputs, last = mtf.layers.gru(x, HIDDEN, name="gru")
        wise, wiser = mtf.layers.gru(x, HIDDEN, "length", initial_state=h, name="begun", reverse=True)
        memory, (result, cell) = mtf.layers.lstm(x, HIDDEN, name="lstm")
        return [outputs, last, wise, wiser, memory, result, cell]

    def formulas(variables: dict[str, tf.Tensor], x: tf.Tensor, h: tf.Tensor) -> list[tf.Tensor]:
        gru, begun, lstm = (keras_weights(variables, name) for name in ("gru", "begun", "lstm"))
        back, last = keras_layer(keras().layers.GRU, begun, tf.reverse(x, [1]), h)
        return [
            *keras_layer(keras().layers.GRU, gru, x),
            tf.reverse(back, [1]),
            last,
            *keras_layer(keras().layers.LSTM, lstm, x),
        ]

    inputs = {"x": normal([BATCH, LENGTH, D_IN]), "h": normal([BATCH, HIDDEN], 1)}
    done = check_layers(layers, formulas, inputs, ["batch:rows;hidden:cols"])
    np.testing.assert_array_equal(done.variables["lstm/bias"], np.eye(4)[:, 1:2] @ np.ones((1, 2)))


def test_both_directions(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    """Over a sequence whose length comes first, and whose features are called as the state."""
    x_shape = [LENGTH, BATCH, mtf.Dimension("hidden", 4)]

    def layers(x: mtf.Tensor) -> list[mtf.Tensor]:
        outputs, (last, first) = mtf.layers.bidirectional(mtf.layers.gru, x, HIDDEN, LENGTH, name="both")
        assert outputs.shape == mtf.convert_to_shape("length:3 batch:4 hidden:4")
        return [outputs, last, first]

    def formulas(variables: dict[str, tf.Tensor], x: tf.Tensor) -> list[tf.Tensor]:
        x = tf.transpose(x, [1, 0, 2])
        there, back = (keras_weights(variables, f"both/{name}") for name in ("forward", "backward"))
        outputs, last = keras_layer(keras().layers.GRU, there, x)
        reversed_outputs, first = keras_layer(keras().layers.GRU, back, tf.reverse(x, [1]))
        both = tf.concat([outputs, tf.reverse(reversed_outputs, [1])], -1)
        return [tf.transpose(both, [1, 0, 2]), last, first]

    check_layers(layers, formulas, {"x": normal(x_shape)}, ["length:rows;hidden:cols"])


def test_inputs_are_multiplied_before_the_loop() -> None:
    """A plan has one product of all inputs, and in the loop one of the state, however long the sequence is."""
    spec = {"x": mtf.TensorSpec("batch:4 length:64 d_in:8")}
    planned = plan(lambda x: mtf.layers.gru(x, HIDDEN)[0], spec, "one:1")
    outside = [step for step in planned.instructions if getattr(step, "name", "").startswith("einsum")]
    assert len(planned.instructions) < 40
    assert len(outside) <= 1


def test_narrow_sequences() -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        outputs, (_, cell) = mtf.layers.lstm(mtf.to_bfloat16(x), HIDDEN)
        assert (outputs.dtype, cell.dtype) == (tf.bfloat16, tf.bfloat16)
        return mtf.to_float(outputs)

    found = interpret(program, {"x": ([BATCH, LENGTH, D_IN], np.ones((4, 3, 4), np.float32))}, "one:1").results
    assert np.isfinite(found).all()


def test_what_is_refused(build: Callable[..., mtf.Graph]) -> None:
    with pytest.raises(ShapeError, match=r"\[d_in:4\] must have a length and features, in this order, at its end"):
        build(lambda x: mtf.layers.gru(x, HIDDEN), [D_IN])
    with pytest.raises(ShapeError, match=r'no dimension "lenght" .*did you mean "length"'):
        build(lambda x: mtf.layers.lstm(x, HIDDEN, "lenght"), [BATCH, LENGTH, D_IN])
    with pytest.raises(DtypeError, match=r"a floating tensor is needed, not int32"):
        build(lambda x: mtf.layers.gru(x, HIDDEN), [LENGTH, D_IN], tf.int32)
