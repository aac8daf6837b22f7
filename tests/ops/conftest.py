"""Programs on the plain interpreter of plans against TensorFlow, under the layouts that they can have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layout import LayoutRules
from meshtf.testing import Interpretation, assert_close, largest, legal_layouts, shapes_of, terms_of
from tests.built_program import BuiltProgram, Inputs
from tests.house.layouts_of_run import is_long_run, layouts_of_run


class Agreement:
    """Checks a function of named tensors against one of TensorFlow tensors: values, gradients, gradients of gradients.

    `limit` layouts of all legal ones are tried on each mesh, in float64 where the inputs are; of layouts that are
    given, those of this run.
    """

    def __init__(self, config: pytest.Config, limit: int, meshes: Sequence[str] = ("rows:2;cols:2",)) -> None:
        self.config = config
        self.limit = limit
        self.meshes = meshes

    def __call__(
        self,
        fn: Callable[..., Any],
        reference: Callable[..., Any],
        inputs: Inputs,
        layouts: Sequence[str] | None = None,
        *,
        order: int = 2,
    ) -> None:
        expected = _expected(reference, inputs, order)
        program = BuiltProgram(_with_gradients(fn, order), inputs)
        one_core = program.interpret("rows:1;cols:1")
        terms_in = functools.cache(functools.partial(terms_of, one_core.plan))
        size = largest(*(array for _, array in inputs.values()))
        self._compare(one_core, expected, terms_in, size, "on one core")
        shapes, given = shapes_of(program.graph), layouts_of_run(layouts or [], self.config)
        for mesh in self.meshes:
            for layout in given or self._legal(shapes, mesh):
                done = program.interpret(mesh, layout)
                self._compare(done, expected, terms_in, size, f'mesh [{mesh}] layout "{layout}"')

    def _legal(self, shapes: Sequence[mtf.Shape], mesh: str) -> list[LayoutRules]:
        """In a short run without the first one, which splits nothing: each core does what one core does."""
        return legal_layouts(shapes, mesh, limit=self.limit)[0 if is_long_run(self.config) else 1 :]

    def _compare(
        self,
        done: Interpretation,
        expected: Sequence[np.ndarray | None],
        terms_in: Callable[[Any], int],
        size: float,
        what: str,
    ) -> None:
        """The values on the way are taken to be no larger than the inputs, of `size`, or the result."""
        for i, (found, wanted) in enumerate(zip(done.results, expected, strict=True)):
            if wanted is not None:
                terms, magnitude = terms_in(wanted.dtype), max(size, largest(wanted))
                assert_close(found, wanted, terms=terms, magnitude=magnitude, what=f"result {i} {what}")


def _with_gradients(fn: Callable[..., Any], order: int) -> Callable[..., Any]:
    """Results, then gradients of the sum of their squares, then those of the sum of the gradients' squares, ..."""

    def program(**inputs: mtf.Tensor) -> list[mtf.Tensor | None]:
        ys = list(tf.nest.flatten(fn(**inputs)))
        xs = [x for x in inputs.values() if x.dtype.is_floating]
        found, level = list(ys), [y for y in ys if y.dtype.is_floating]
        for _ in range(order if xs and level else 0):
            loss = mtf.add_n([mtf.reduce_sum(mtf.square(y)) for y in level])
            grads = mtf.gradients(loss, xs)
            found += grads
            level = [g for g in grads if g is not None]
        return found

    return program


def _expected(reference: Callable[..., Any], inputs: Inputs, order: int) -> list[np.ndarray | None]:
    tensors = {name: tf.constant(array) for name, (_, array) in inputs.items()}
    xs = [x for x in tensors.values() if x.dtype.is_floating]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(xs)
        ys = list(tf.nest.flatten(reference(**tensors)))
        found, level = list(ys), [y for y in ys if y.dtype.is_floating]
        for _ in range(order if xs and level else 0):
            loss = tf.add_n([tf.reduce_sum(tf.square(y)) for y in level])
            grads = [None if g is None else tf.convert_to_tensor(g) for g in tape.gradient(loss, xs)]
            found += grads
            level = [g for g in grads if g is not None]
    return [None if y is None else y.numpy() for y in found]


@pytest.fixture
def agrees(request: pytest.FixtureRequest) -> Agreement:
    return Agreement(request.config, 8 if is_long_run(request.config) else 4)


@pytest.fixture
def agrees_on_many_meshes(request: pytest.FixtureRequest) -> Agreement:
    """One axis, two of different sizes, and three."""
    limit = 6 if is_long_run(request.config) else 3
    return Agreement(request.config, limit, ("cores:4", "rows:2;cols:3", "rows:2;cols:2;deep:2"))
