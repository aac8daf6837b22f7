"""Programs of complex tensors against TensorFlow: values, and gradients of the sum of |y| squared, and of those."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import assert_close, largest, terms_of
from tests.built_program import BuiltProgram

Inputs = Mapping[str, tuple[str, np.ndarray]]


def check(
    fn: Callable[..., Any],
    reference: Callable[..., Any],
    inputs: Inputs,
    layouts: Sequence[str] = ("",),
    *,
    order: int = 2,
    mesh: str = "rows:2;cols:2",
) -> None:
    """`fn` is given tensors that are held in their own layouts."""
    expected = _expected(reference, inputs, order)
    program = BuiltProgram(_with_gradients(fn, order), inputs)
    terms_in = functools.cache(functools.partial(terms_of, program.interpret("one:1").plan))
    size = largest(*(array for _, array in inputs.values()))
    for layout in layouts:
        done = program.interpret(mesh, layout)
        for i, (found, wanted) in enumerate(zip(done.results, expected, strict=True)):
            assert (found is None) == (wanted is None), f"result {i}"
            if wanted is not None:
                terms, magnitude = terms_in(wanted.dtype), max(size, largest(wanted))
                assert_close(found, wanted, terms=terms, magnitude=magnitude, what=f'result {i} under "{layout}"')


def _is_differentiable(x: Any) -> bool:
    return x.dtype.is_floating or x.dtype.is_complex


def _with_gradients(fn: Callable[..., Any], order: int) -> Callable[..., Any]:
    def loss(ys: Sequence[mtf.Tensor]) -> mtf.Tensor:
        return mtf.add_n([mtf.reduce_sum(mtf.square(part(y))) for y in ys for part in (mtf.real, mtf.imag)])

    def program(**inputs: mtf.Tensor) -> list[mtf.Tensor | None]:
        xs = {name: mtf.identity(x) for name, x in inputs.items()}
        found = list(tf.nest.flatten(fn(**xs)))
        level = [y for y in found if _is_differentiable(y)]
        by = [x for x in xs.values() if _is_differentiable(x)]
        for _ in range(order):
            grads = mtf.gradients(loss(level), by)
            found += grads
            level = [g for g in grads if g is not None]
        return found

    return program


def _expected(reference: Callable[..., Any], inputs: Inputs, order: int) -> list[np.ndarray | None]:
    def loss(ys: Sequence[tf.Tensor]) -> tf.Tensor:
        parts = [
            part(y) for y in ys for part in ((tf.math.real, tf.math.imag) if y.dtype.is_complex else (tf.identity,))
        ]
        return tf.add_n([tf.reduce_sum(tf.square(part)) for part in parts])

    xs = {name: tf.constant(array) for name, (_, array) in inputs.items()}
    by = [x for x in xs.values() if _is_differentiable(x)]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(by)
        found = list(tf.nest.flatten(reference(**xs)))
        level = [y for y in found if _is_differentiable(y)]
        for _ in range(order):
            grads = tape.gradient(loss(level), by)
            found += grads
            level = [g for g in grads if g is not None]
    return [None if y is None else y.numpy() for y in found]


def complex_array(rng: np.random.Generator, *sizes: int) -> np.ndarray:
    return rng.standard_normal(sizes) + 1j * rng.standard_normal(sizes)
