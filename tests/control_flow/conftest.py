"""Programs with loops against the same programs without, on the interpreter and on virtual CPUs."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.lowering.report.accounting import collectives
from meshtf.planning.plan import Plan
from meshtf.testing import assert_close, interpret, largest, terms_of
from tests.built_program import BuiltProgram, Inputs
from tests.house.layouts_of_run import layouts_of_run

MESH = "rows:2;cols:2"


class Twins:
    """Checks a program against a plain one: results, gradients of the sum of their squares, gradients of those."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def __call__(
        self,
        program: Callable[..., Any],
        plain: Callable[..., Any],
        inputs: Inputs,
        layouts: Sequence[str],
        *,
        mesh: str = MESH,
        order: int = 2,
    ) -> None:
        expected = interpret(with_gradients(plain, order), inputs, "one:1")
        size = largest(*(array for _, array in inputs.values()), *expected.variables.values())
        terms_in = functools.cache(functools.partial(terms_of, expected.plan))
        built = BuiltProgram(with_gradients(program, order), inputs)
        for layout in ("", *layouts_of_run(layouts, self.config)):
            done = built.interpret(mesh, layout)
            assert len(done.results) == len(expected.results)
            for i, (found, wanted) in enumerate(zip(done.results, expected.results, strict=True)):
                assert (found is None) == (wanted is None), f"result {i} is {found}, expected {wanted}"
                if wanted is not None:
                    terms, magnitude = terms_in(wanted.dtype), max(size, largest(wanted))
                    assert_close(found, wanted, terms=terms, magnitude=magnitude, what=f'result {i} under "{layout}"')
            assert done.variables.keys() >= expected.variables.keys()
            for name, value in expected.variables.items():
                assert_close(
                    done.variables[name],
                    value,
                    terms=terms_in(value.dtype),
                    magnitude=size,
                    what=f'{name} under "{layout}"',
                )


def with_gradients(fn: Callable[..., Any], order: int) -> Callable[..., Any]:
    """Results, then gradients by the floating inputs and trainable variables, order by order."""

    def program(mesh: mtf.Mesh, **inputs: mtf.Tensor) -> list[mtf.Tensor | None]:
        ys = [y for y in tf.nest.flatten(fn(mesh, **inputs)) if isinstance(y, mtf.Tensor)]
        xs = [x for x in inputs.values() if x.dtype.is_floating]
        xs += [v.value for v in mesh.graph.trainable_variables]
        found, level = list(ys), [y for y in ys if y.dtype.is_floating]
        for _ in range(order):
            grads = mtf.gradients([mtf.reduce_sum(mtf.square(y)) for y in level], xs)
            found += grads
            level = [g for g in grads if g is not None]
        return found

    return program


def counted(plan: Plan) -> Counter[str]:
    """How many collectives of each kind run."""
    counts: Counter[str] = Counter()
    for collective, times in collectives(plan):
        counts[collective.step.kind] += times
    return counts


@pytest.fixture
def twins(request: pytest.FixtureRequest) -> Twins:
    return Twins(request.config)


@pytest.fixture
def count_collectives() -> Callable[[Plan], Counter[str]]:
    return counted


@pytest.fixture
def gradients_of() -> Callable[..., Any]:
    return with_gradients
