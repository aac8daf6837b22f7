"""Which segments share a traced function, and that results are those of functions of their own."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.processors import cores_in_one_memory
from meshtf.lowering.processors.cores_in_one_memory import CoresInOneMemory
from meshtf.lowering.processors.segment_likeness import likeness
from tests.lowering.emitted import cores_in_memory

B, D, WIDE = mtf.Dimension("batch", 8), mtf.Dimension("d", 8), mtf.Dimension("wide", 16)
LAYERS = 4
X = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
Layer = Callable[[mtf.Tensor, int], mtf.Tensor]


def dense(x: mtf.Tensor, n: int) -> mtf.Tensor:
    """Two products; between core and core goes a sum."""
    w = mtf.get_variable(x.mesh, f"w_{n}", [D, WIDE])
    v = mtf.get_variable(x.mesh, f"v_{n}", [WIDE, D])
    return x + mtf.einsum([mtf.relu(mtf.einsum([x, w], [B, WIDE])), v], [B, D])


def trained(layer: Layer) -> mtf.Function:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        for n in range(LAYERS):
            x = layer(x, n)
        loss = mtf.reduce_mean(mtf.square(x))
        mtf.optimize.AdamOptimizer(0.01).minimize(loss)
        return loss

    return mtf.function(
        step, mtf.SpmdMeshImpl("rows:2;cols:4", "batch:rows;wide:cols"), {"x": mtf.TensorSpec([B, D])}, seed=3
    )


@functools.cache
def largest_group(layer: Layer) -> int:
    return groups(cores_in_memory(trained(layer)))[0]


def groups(cores: CoresInOneMemory) -> list[int]:
    """How many segments are alike, of each kind, the most first."""
    keys: collections.Counter[Hashable] = collections.Counter(likeness(s, cores.facts) or s for s in cores._segments)
    return sorted(keys.values(), reverse=True)


def test_those_of_layers_are_traced_once() -> None:
    step = trained(dense)
    step(x=X)
    cores = cores_in_memory(step)
    assert len(cores._segments) > len(cores.traces)
    assert set(cores.traces.values()) == {1}
    assert groups(cores)[0] >= LAYERS - 1


def test_results_are_those_of_functions_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = trained(dense)
    losses = [shared(x=X) for _ in range(3)]
    monkeypatch.setattr(cores_in_one_memory, "likeness", lambda segment, facts: None)
    alone = trained(dense)
    np.testing.assert_array_equal(losses, [alone(x=X) for _ in range(3)])
    cores = cores_in_memory(alone)
    assert len(cores.traces) == len([s for s in cores._segments if s.instructions or s.ends_program])
    for name, value in shared.variables.items():
        np.testing.assert_array_equal(value, alone.variables[name])


TYPES = [tf.bfloat16, tf.float64, tf.float16, tf.float32]


def scaled(factor: Any) -> Layer:
    return lambda x, n: factor(n) * dense(x, n)


doubled = scaled(lambda _: 2.0)


@pytest.mark.parametrize(
    "layer",
    [
        pytest.param(scaled(lambda n: 1.0 + n), id="a number"),
        pytest.param(
            lambda x, n: [mtf.relu, mtf.tanh, mtf.sigmoid, mtf.square][n](dense(x, n)),
            id="a function",
            marks=pytest.mark.long,
        ),
        pytest.param(
            lambda x, n: mtf.cast(mtf.cast(dense(x, n), TYPES[n]), tf.float32), id="a type", marks=pytest.mark.long
        ),
        pytest.param(lambda x, n: dense(x, n) - x if n % 2 else x - dense(x, n), id="the order of operands"),
    ],
)
def test_what_differs_is_not_alike(layer: Layer) -> None:
    assert largest_group(layer) < largest_group(doubled)


def test_what_may_fail_is_traced_for_each() -> None:
    """So that an error names the layer: TensorFlow tells the operation in a function, and not which call it was."""

    def layer(x: mtf.Tensor, n: int) -> mtf.Tensor:
        y = dense(x, n)
        ids = mtf.cast(mtf.argmax(y, D), tf.int32)
        return y + mtf.gather(y, ids, D)

    step = trained(layer)
    step(x=X)
    failing = [f for f in cores_in_memory(step)._functions.values() if f.may_fail]
    assert len(failing) >= LAYERS - 1
    assert len(failing) == len(set(failing))


def test_functions_of_the_user_s_are_traced_wherever_they_are() -> None:
    drawn = np.random.default_rng(0)

    def impure(x: tf.Tensor) -> tf.Tensor:
        return x + drawn.normal()

    def layer(x: mtf.Tensor, n: int) -> mtf.Tensor:
        return mtf.slicewise(impure, [dense(x, n)], splittable_dims=["batch", "d"], grad_function=lambda _, dy: [dy])

    cores = cores_in_memory(trained(layer))
    own = [s for s in cores._segments if any(i.operation.why_not_compiled for i in s.instructions)]
    assert len(own) >= LAYERS - 1
    assert all(likeness(s, cores.facts) is None for s in own)
