"""Programs around the cases of random programs, with gradients and Hessians as functions of arrays."""

from __future__ import annotations

import dataclasses
import random
import zlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.layout import LayoutRules
from meshtf.ops.variables.program_step import count_step
from meshtf.testing import interpret_graph
from tests.properties.random_programs.builder import Builder, Space
from tests.properties.random_programs.cases import EVERY_CASE
from tests.properties.random_programs.generate import draw_layout
from tests.properties.random_programs.program import Node, Program

STEP = 1e-5
ONE_CORE = mtf.convert_to_shape("one:1")
Arrays = list[np.ndarray]

_FEW, _MANY = 4, 20


@dataclasses.dataclass(frozen=True)
class Differentiated:
    """A program around a case, with its gradients and their product with a direction, as functions of arrays."""

    program: Program
    xs: Sequence[Node]
    ys: Sequence[Node]
    weights: Sequence[tuple[np.ndarray, np.ndarray]]
    fetches: Sequence[mtf.Tensor]
    mesh_shape: mtf.Shape = ONE_CORE
    rules: LayoutRules | str = ""

    @property
    def drawn(self) -> Arrays:
        return [self.program.feeds[x.tensor.operation.name] for x in self.xs]

    def __call__(self, xs: Arrays, directions: Arrays) -> tuple[Arrays, Arrays]:
        """The gradients, and those of their sum weighted by the directions."""
        given = {x.tensor.operation.name: array for x, array in zip(self.xs, xs, strict=True)}
        along = {f"along_{i}": array for i, array in enumerate(directions)}
        feeds = {**self.program.feeds, **given, **along}
        found = interpret_graph(
            self.program.graph, self.fetches, feeds, self.mesh_shape, self.rules, with_effects=False
        ).results
        return found[: len(xs)], found[len(xs) :]


def differentiated(
    case: str, mesh_shape: mtf.Shape = ONE_CORE, seed: int = 0, *, is_linear: bool = False, tries: int = 40
) -> Differentiated | None:
    """The first program that is drawn around a case, has gradients, and neither few nor many numbers; else the last one
    with gradients, or None. `is_linear`: of `sum(c y)`."""
    rng, last = random.Random(zlib.crc32(case.encode()) + seed), None
    for _ in range(tries):
        mesh = mtf.Mesh(mtf.Graph("program"))
        with mesh.graph:
            builder = Builder(rng, mesh, mesh_shape, space=Space(dtypes=(tf.float64,)))
            if not builder.attempt(EVERY_CASE[case]) or not (found := _with_gradients(builder, is_linear=is_linear)):
                continue
            count_step(mesh)
        rules = draw_layout(rng, found.program, mesh_shape)
        last = dataclasses.replace(found, mesh_shape=mesh_shape, rules=rules)
        if _FEW <= sum(x.size for x in last.drawn) <= _MANY:
            break
    return last


def _with_gradients(b: Builder, *, is_linear: bool) -> Differentiated | None:
    program = b.program
    program.forward_operations = len(b.mesh.graph.operations)
    ys = [y for step in program.steps for y in step.outputs if y.tensor.dtype == tf.float64]
    fed = [x for x in program.nodes if x.is_differentiable and x.tensor.operation.name in program.feeds]
    xs = [x for x in fed if x.tensor.dtype == tf.float64 and x.tensor.size]
    if not ys or not xs:
        return None
    numbers = np.random.default_rng(0)
    weights = [(numbers.uniform(0.5, 1.5, y.array.shape), numbers.uniform(0.5, 1.5, y.array.shape)) for y in ys]
    totals = []
    for y, each in zip(ys, weights, strict=True):
        linear, squared = (mtf.import_tf_tensor(b.mesh, w, y.shape) for w in each)
        factor = linear if is_linear else linear + 0.5 * squared * y.tensor
        totals.append(mtf.reduce_sum(factor * y.tensor))
    firsts = mtf.gradients(totals, [x.tensor for x in xs])
    pairs = [(x, first) for x, first in zip(xs, firsts, strict=True) if first is not None]
    return Differentiated(program, [x for x, _ in pairs], ys, weights, _second(b, pairs)) if pairs else None


def _second(b: Builder, pairs: Sequence[tuple[Node, mtf.Tensor]]) -> list[mtf.Tensor]:
    """The gradients, and those of their sum weighted by placeholders."""
    along = [mtf.placeholder(b.mesh, x.shape, tf.float64, f"along_{i}") for i, (x, _) in enumerate(pairs)]
    sums = [mtf.reduce_sum(first * w) for (_, first), w in zip(pairs, along, strict=True)]
    seconds = mtf.gradients(sums, [x.tensor for x, _ in pairs])
    found = [mtf.zeros_like(x.tensor) if s is None else s for (x, _), s in zip(pairs, seconds, strict=True)]
    return [*(first for _, first in pairs), *found]


def directions(xs: Arrays, seed: int = 2) -> Arrays:
    """As large as the numbers are, so that a step along them is small beside each."""
    numbers = np.random.default_rng(seed)
    return [np.where(x == 0, 1.0, np.abs(x)) * numbers.uniform(-1.0, 1.0, x.shape) for x in xs]


def scaled(found: Arrays, xs: Arrays) -> np.ndarray:
    """All derivatives, each times the size of its number: as large as others, be the number tiny."""
    return np.concatenate([(y * np.where(x == 0, 1.0, np.abs(x))).ravel() for y, x in zip(found, xs, strict=True)])


def slopes(d: Differentiated, xs: Arrays, ws: Arrays) -> Arrays:
    """Of the gradients along a direction, by differences."""
    ends = [d([x + step * w for x, w in zip(xs, ws, strict=True)], ws)[0] for step in (STEP, -STEP)]
    return [(ahead - behind) / (2 * STEP) for ahead, behind in zip(*ends, strict=True)]


def of_tensorflow(d: Differentiated, xs: Arrays, ws: Arrays) -> tuple[Arrays, Arrays]:
    """What `Differentiated` gives, of the reference by TensorFlow's tape."""
    watched = [tf.constant(x) for x in xs]
    sources = {n: n.value for n in d.program.nodes if n.is_input} | dict(zip(d.xs, watched, strict=True))
    with tf.GradientTape() as outer:
        outer.watch(watched)
        with tf.GradientTape() as inner:
            inner.watch(watched)
            values = d.program.run_reference(sources)
            pairs = zip(d.ys, d.weights, strict=True)
            total = sum(tf.reduce_sum((c + 0.5 * e * values[y]) * values[y]) for y, (c, e) in pairs)
        firsts = [tf.convert_to_tensor(g) for g in inner.gradient(total, watched, unconnected_gradients="zero")]
        product = sum(tf.reduce_sum(g * w) for g, w in zip(firsts, ws, strict=True))
    seconds = outer.gradient(product, watched, unconnected_gradients="zero")
    return [g.numpy() for g in firsts], [tf.convert_to_tensor(s).numpy() for s in seconds]
