"""Several programs over one store of variables: drawn assignments, in drawn layouts, called in any order."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import FUNCTION_TERMS, assert_close, legal_layouts
from tests.properties.random_programs.program import spread, summed

MESHES = ["rows:2;cols:2", "all:4", "rows:4;cols:2"]
DIMS = [mtf.Dimension("a", 4), mtf.Dimension("b", 8), mtf.Dimension("c", 3)]
_ASSIGNMENTS = {"assign": lambda old, new: new, "assign_add": np.add, "assign_sub": np.subtract}
_CALLS = 6


@dataclasses.dataclass(frozen=True)
class Assignment:
    """To a variable, of a function of another: as it is now, or as it was when the program began."""

    kind: str
    target: int
    source: int
    reads_now: bool


@dataclasses.dataclass(frozen=True)
class Drawn:
    """Variables, and programs that assign them."""

    shapes: Sequence[mtf.Shape]
    programs: Sequence[Sequence[Assignment]]

    @classmethod
    def of(cls, rng: random.Random) -> Drawn:
        shapes = [mtf.Shape(rng.sample(DIMS, rng.randint(1, 3))) for _ in range(3)]
        programs = [
            [
                Assignment(rng.choice(list(_ASSIGNMENTS)), rng.randrange(3), rng.randrange(3), rng.random() < 0.5)
                for _ in range(rng.randint(1, 3))
            ]
            for _ in range(3)
        ]
        return cls(shapes, programs)

    def body(self, program: Sequence[Assignment], mesh: mtf.Mesh, x: mtf.Tensor) -> list[mtf.Tensor]:
        """Gives what each variable holds in the end; `x` [b] is in all that is assigned."""
        first = [
            mtf.get_variable(mesh, f"v{i}", shape, initializer=mtf.RandomUniform(-1.0, 1.0))
            for i, shape in enumerate(self.shapes)
        ]
        for step in program:
            source, shape = self.shapes[step.source], self.shapes[step.target]
            held = mtf.read_variable(first[step.source]) if step.reads_now else first[step.source]
            kept = [d for d in _both(source) if shape.has(d.name)]
            total = mtf.broadcast(mtf.reduce_sum(mtf.sin(held) * x, output_shape=kept), shape)
            getattr(mtf, step.kind)(first[step.target], total / float(_summed_elements(source, shape)))
        return [mtf.read_variable(v) for v in first]

    def expected(self, program: Sequence[Assignment], values: list[np.ndarray], x: np.ndarray) -> list[np.ndarray]:
        first, held = list(values), list(values)
        for step in program:
            source, shape = self.shapes[step.source], self.shapes[step.target]
            both = _both(source)
            own = spread(tf.sin((held if step.reads_now else first)[step.source]), source.dimension_names, both)
            total = summed(own * spread(tf.constant(x), ["b"], both), both, shape) / _summed_elements(source, shape)
            held[step.target] = _ASSIGNMENTS[step.kind](held[step.target], total.numpy())
        return held


def _both(source: mtf.Shape) -> mtf.Shape:
    """The dimensions of a variable and of x."""
    return source if source.has("b") else source + [DIMS[1]]


def _summed_elements(source: mtf.Shape, target: mtf.Shape) -> int:
    """How many are added up for each element, so that their mean is as large as they are."""
    return mtf.Shape([d for d in _both(source) if not target.has(d.name)]).size


def check(seed: int) -> None:
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    drawn, mesh_shape, store = Drawn.of(rng), rng.choice(MESHES), mtf.VariableStore()
    known = [d for d in DIMS if d.name == "b" or any(shape.has(d.name) for shape in drawn.shapes)]
    layouts = legal_layouts([mtf.Shape(known)], mesh_shape)
    parameter_layout, functions = rng.choice(layouts), []
    for number, program in enumerate(drawn.programs):

        def body(mesh: mtf.Mesh, x: mtf.Tensor, program: Sequence[Assignment] = program) -> list[mtf.Tensor]:
            return drawn.body(program, mesh, x)

        mesh_impl = mtf.SpmdMeshImpl(mesh_shape, rng.choice(layouts), parameter_layout=parameter_layout)
        inputs = {"x": mtf.TensorSpec([DIMS[1]])}
        functions.append(mtf.function(body, mesh_impl, inputs, store, name=f"program_{number}"))
    functions[0].initialize()
    values = [store[f"v{i}"].astype(np.float64) for i in range(3)]
    terms = [mtf.Shape(DIMS).size + FUNCTION_TERMS] * 3  # of a call: three assignments, each a function and a sum
    for call in range(_CALLS):
        number, x = rng.randrange(3), numbers.uniform(-1, 1, 8).astype(np.float32)
        what = f"seed {seed}, call {call}, of program {number} under {drawn}"
        results = functions[number](x=x)
        values = drawn.expected(drawn.programs[number], values, x.astype(np.float64))
        size = max(1.0, *(float(np.abs(v).max()) for v in values))
        for i, value in enumerate(values):
            for found in (results[i], store[f"v{i}"]):
                assert_close(found, value, terms=terms, magnitude=size, steps=call, dtype=tf.float32, what=what)


@pytest.mark.long
@pytest.mark.parametrize("number", range(12))
def test_programs_that_share_their_variables(seed: int, number: int) -> None:
    check(seed + number)
