"""Layers on the plain interpreter of plans, under many layouts, against formulas in TensorFlow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import Interpretation, assert_close, largest, terms_of
from tests.built_program import BuiltProgram, Inputs
from tests.house.layouts_of_run import layouts_of_run

MESH = "rows:2;cols:2"


def check_layers(
    layers: Callable[..., Sequence[mtf.Tensor]],
    formulas: Callable[..., Sequence[Any]],
    inputs: Inputs,
    layouts: Sequence[str],
    mesh: str = MESH,
) -> Interpretation:
    """Compares values, and the gradients of their sum with random weights by the inputs and trainable variables.

    Args:
      layers: of the named tensors.
      formulas: the same of `variables`, the initial values by name, and of the inputs as TensorFlow tensors.
      inputs: dimensions and array of each.
      layouts: each is compared; without one first.
      mesh: of the layouts.

    Returns:
      What came of one core.
    """
    program = BuiltProgram(_with_gradients(layers), inputs)
    one_core = program.interpret("rows:1;cols:1")
    *_, before = one_core.results
    expected, expected_grads = _expected(formulas, inputs, before)
    terms_in = functools.cache(functools.partial(terms_of, one_core.plan))
    size = largest(*(array for _, array in inputs.values()), *before.values())

    def check(found: np.ndarray, wanted: np.ndarray, what: str, dtype: Any) -> None:
        """The values on the way are taken to be no larger than inputs, variables or the result."""
        magnitude = max(size, largest(wanted))
        assert_close(found, wanted, terms=terms_in(dtype), magnitude=magnitude, dtype=dtype, what=what)

    for layout in [None, *layouts]:
        done = one_core if layout is None else program.interpret(mesh, layout)
        values, grads, _ = done.results
        where = "on one core" if layout is None else f'under layout "{layout}"'
        for i, (value, wanted) in enumerate(zip(values, expected, strict=True)):
            check(value, wanted.numpy(), f"result {i} {where}", wanted.dtype)
        assert grads.keys() == expected_grads.keys()
        for name, grad in grads.items():
            check(grad, expected_grads[name], f"gradient by {name} {where}", tf.float32)
        assert done.variables.keys() == one_core.variables.keys()
        for name, variable in done.variables.items():
            check(variable, one_core.variables[name], f"{name} {where}", tf.float32)
    return one_core


def _with_gradients(layers: Callable[..., Sequence[mtf.Tensor]]) -> Callable[..., Any]:
    """Results, gradients by name, and the initial values of the variables."""

    def program(**inputs: mtf.Tensor) -> tuple[Sequence[mtf.Tensor], dict[str, mtf.Tensor], dict[str, mtf.Tensor]]:
        ys = layers(**inputs)
        mesh = ys[0].mesh
        xs = {name: x for name, x in inputs.items() if x.dtype.is_floating}
        xs |= {variable.full_name: variable.value for variable in mesh.graph.trainable_variables}
        weighted = [
            mtf.reduce_sum(y * mtf.import_tf_tensor(mesh, w, y.shape))
            for y, w in zip(ys, _weights([y.shape.to_integer_list for y in ys]), strict=True)
        ]
        found = mtf.gradients(mtf.add_n(weighted), list(xs.values()))
        initial = {name: variable.outputs[0] for name, variable in mesh.graph.variables.items()}
        return ys, {name: grad for name, grad in zip(xs, found, strict=True) if grad is not None}, initial

    return program


def _expected(
    formulas: Callable[..., Sequence[Any]], inputs: Inputs, variables: Mapping[str, np.ndarray]
) -> tuple[Sequence[tf.Tensor], dict[str, np.ndarray]]:
    tensors = {name: tf.constant(array) for name, (_, array) in inputs.items()}
    weights = {name: tf.constant(array) for name, array in variables.items()}
    with tf.GradientTape() as tape:
        xs = {name: x for name, x in {**tensors, **weights}.items() if x.dtype.is_floating}
        tape.watch(list(xs.values()))
        ys = list(formulas(weights, **tensors))
        total = tf.add_n([tf.reduce_sum(y * w) for y, w in zip(ys, _weights([y.shape for y in ys]), strict=True)])
    found = zip(xs, tape.gradient(total, list(xs.values())), strict=True)
    return ys, {name: tf.convert_to_tensor(grad).numpy() for name, grad in found if grad is not None}


def _weights(shapes: Sequence[Any]) -> list[np.ndarray]:
    generator = np.random.default_rng(7)
    return [generator.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.fixture(name="check_layers")
def _check_layers(request: pytest.FixtureRequest) -> Callable[..., Interpretation]:
    """Compares under the layouts of this run."""

    def check(
        layers: Callable[..., Sequence[mtf.Tensor]],
        formulas: Callable[..., Sequence[Any]],
        inputs: Inputs,
        layouts: Sequence[str],
        mesh: str = MESH,
    ) -> Interpretation:
        return check_layers(layers, formulas, inputs, layouts_of_run(layouts, request.config), mesh)

    return check


def normal(shape: Sequence[mtf.Dimension], seed: int = 0) -> tuple[Sequence[mtf.Dimension], np.ndarray]:
    sizes = [d.size for d in shape]
    return shape, np.random.default_rng(seed).normal(size=sizes).astype(np.float32)


@pytest.fixture(name="normal")
def _normal() -> Callable[..., tuple[Sequence[mtf.Dimension], np.ndarray]]:
    return normal


def build(fn: Callable[..., object], shape: Any, dtype: tf.DType = tf.float32) -> mtf.Graph:
    """The graph of a function of one tensor."""
    graph = mtf.Graph()
    with graph:
        fn(mtf.zeros(mtf.Mesh(graph), shape, dtype))
    return graph


@pytest.fixture(name="build")
def _build() -> Callable[..., mtf.Graph]:
    return build
