"""Random patterns under random layouts, against NumPy's reshape, transpose, reductions and einsum."""

from __future__ import annotations

import dataclasses
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshtf as mtf
from meshtf.testing import assert_close, legal_layouts, shapes_of
from tests.built_program import BuiltProgram

pytestmark = pytest.mark.quick

MESH = "rows:2;cols:2"
NUMPY = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A pattern, the tensor that it is for, and what NumPy does to it."""

    pattern: str
    shape: str
    factors: tuple[int, ...]
    sizes: dict[str, int]
    order: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    def applied(self, x: np.ndarray, kind: str | None) -> np.ndarray:
        """What the pattern makes of an array."""
        x = x.reshape(self.factors)
        dropped = tuple(i for i in range(len(self.factors)) if i not in self.order)
        kept = [i for i in range(len(self.factors)) if i in self.order]
        x = NUMPY[kind](x, axis=dropped) if kind and dropped else x
        x = x.transpose([kept.index(i) for i in self.order])
        return x.reshape([math.prod(self.factors[i] for i in group) for group in self.groups])


def drawn_pattern(draw: random.Random, reduces: bool) -> Drawn:
    """A pattern in which dimensions are split, brought into another order, merged, and perhaps reduced."""
    left, shape, factors, names, sizes = [], [], [], [], {}
    for i in range(draw.randint(1, 3)):
        own = [draw.choice((1, 2, 2, 3, 4)) for _ in range(draw.choice((1, 1, 2, 3)))]
        own_names = [f"d{i}" if len(own) == 1 else f"d{i}_{j}" for j in range(len(own))]
        inferred = draw.randrange(len(own))
        parts = [n if j == inferred else draw.choice((n, f"{n}:{own[j]}")) for j, n in enumerate(own_names)]
        sizes |= {n: own[j] for j, n in enumerate(own_names) if parts[j] == n and j != inferred}
        label = draw.choice(("", f"d{i}: "))
        left.append(parts[0] if len(own) == 1 else f"({label}{' '.join(parts)})")
        shape.append(f"d{i}:{math.prod(own)}")
        factors += own
        names += own_names
    order = draw.sample(range(len(factors)), len(factors) if not reduces else draw.randint(0, len(factors)))
    groups = [(i,) for i in order]
    for _ in range(draw.randint(0, 2) if len(groups) > 1 else 0):
        at = draw.randrange(len(groups))
        groups[at : at + 2] = [tuple(i for group in groups[at : at + 2] for i in group)]
    right = [names[g[0]] if len(g) == 1 else f"(m{n}: {' '.join(names[i] for i in g)})" for n, g in enumerate(groups)]
    pattern = f"{' '.join(left)} -> {' '.join(right)}"
    return Drawn(pattern, " ".join(shape), tuple(factors), sizes, tuple(order), tuple(groups))


def check(program: BuiltProgram, expected: np.ndarray, magnitude: np.ndarray, draw: random.Random, what: str) -> None:
    """Compares under one core's layout and two others that are legal.

    `magnitude` is the result for absolute values, since rounding is relative to the terms of a sum, which may cancel.
    """
    layouts = legal_layouts(shapes_of(program.graph), MESH)
    for layout in ["", *draw.sample(layouts, min(2, len(layouts)))]:
        found = program.interpret(MESH, layout).results
        assert found.shape == expected.shape, what
        assert_close(found, expected, terms=64, magnitude=magnitude, what=f'{what} under "{layout}"')


@settings(max_examples=25, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from([None, *NUMPY]))
def test_rearrange_and_reduce(draw: random.Random, kind: str | None) -> None:
    drawn = drawn_pattern(draw, kind is not None)
    x = np.random.default_rng(0).standard_normal([d.size for d in mtf.convert_to_shape(drawn.shape)])

    def program(x: mtf.Tensor) -> mtf.Tensor:
        if kind is None:
            return mtf.rearrange(x, drawn.pattern, **drawn.sizes)
        return mtf.reduce(x, drawn.pattern, kind, **drawn.sizes)

    built = BuiltProgram(program, {"x": (drawn.shape, x)})
    wanted, magnitude = drawn.applied(x, kind), drawn.applied(np.abs(x), kind and kind.replace("min", "max"))
    check(built, wanted, magnitude, draw, f"{kind} {drawn.pattern} of [{drawn.shape}] with {drawn.sizes}")


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False))
def test_einsum(draw: random.Random) -> None:
    sizes = {name: draw.choice((1, 2, 3, 4)) for name in "abcd"}
    operands = [draw.sample("abcd", draw.randint(1, 4)) for _ in range(draw.randint(1, 3))]
    present = sorted({name for names in operands for name in names})
    result = draw.sample(present, draw.randint(0, len(present)))
    terms = [" ".join(draw.sample(names, len(names))) for names in operands]
    pattern = f"{', '.join(terms)} -> {' '.join(result)}"
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([sizes[n] for n in names]) for names in operands]
    inputs = {
        f"x{i}": (" ".join(f"{n}:{sizes[n]}" for n in names), array)
        for i, (names, array) in enumerate(zip(operands, arrays, strict=True))
    }
    programs = [
        lambda x0: mtf.einsum(pattern, x0),
        lambda x0, x1: mtf.einsum(pattern, x0, x1),
        lambda x0, x1, x2: mtf.einsum(pattern, x0, x1, x2),
    ]
    equation = f"{','.join(''.join(names) for names in operands)}->{''.join(result)}"
    expected, magnitude = (np.asarray(np.einsum(equation, *xs)) for xs in (arrays, [np.abs(x) for x in arrays]))
    check(BuiltProgram(programs[len(operands) - 1], inputs), expected, magnitude, draw, pattern)
