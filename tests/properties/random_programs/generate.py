"""Whole programs: operations drawn from the table of cases, then gradients, then a legal layout."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from random_programs import (
    cases_contraction,
    cases_control_flow,
    cases_elementwise,
    cases_escape,
    cases_neighbours,
    cases_pieces,
    cases_scatter,
    cases_sequence,
    cases_sources,
    cases_transforms,
)
from random_programs.builder import Builder, RejectedError, chance, wide
from random_programs.cases_elementwise import Case
from random_programs.program import Node, Program

import meshtf as mtf
from meshtf.errors import LayoutError
from meshtf.layout import Axes, LayoutRules
from meshtf.planning.layout_table import LayoutTable
from meshtf.testing.legal_layouts import choices_by_dimension, neighbours

CASES: dict[str, Case] = {
    **cases_elementwise.CASES,
    **cases_contraction.CASES,
    **cases_neighbours.CASES,
    **cases_pieces.CASES,
    **cases_scatter.CASES,
    **cases_sequence.CASES,
    **cases_sources.CASES,
    **cases_escape.CASES,
    **cases_control_flow.CASES,
    **cases_transforms.CASES,
}

_MOST_XS = 4

# Beside these little happens between cores: two in five steps are one of them.
_LINEAR = [
    "einsum of 2", "einsum of 3", "reduce_sum", "reduce_mean", "add", "sub", "negative", "scalar *", "scalar /",
    "reshape", "replace_dimensions", "rename_dimension", "transpose", "broadcast", "stop_gradient", "depend", "add_n",
    "with_layout", "with_layout None", "replicate",
]  # fmt: skip


def random_program(
    rng: random.Random, mesh: mtf.Mesh, mesh_shape: mtf.Shape, first: str, prefix: str = "", longest: int = 8
) -> Program:
    """A program that has the case `first` in it, and up to `longest` operations, with gradients."""
    dtype = rng.choice([tf.float32] * 14 + [tf.float64] * 3 + [tf.bfloat16] * 2 + [tf.float16])
    # Roundings of narrow dtypes add up, and the reference does not round.
    longest = min(longest, 2) if dtype.size == 2 else longest
    builder = Builder(rng, mesh, mesh_shape, prefix, dtype)
    program = builder.program
    names = list(CASES)
    wanted = [first, *(rng.choice(_LINEAR if chance(rng, 0.4) else names) for _ in range(rng.randrange(longest)))]
    rng.shuffle(wanted)
    for name in wanted:
        tries = 40 if name == first else 3
        if any(builder.attempt(CASES[name]) for _ in range(tries)):
            program.cases.append(name)
    if first not in program.cases:
        raise RejectedError(f"no legal step of case {first!r} was found in 40 tries")
    program.forward_operations = len(mesh.graph.operations)
    add_fetches(builder)
    return program


def add_fetches(b: Builder) -> None:
    """Fetches what nothing consumes, some of the rest, and gradients of a random linear function of it all."""
    program = b.program
    made = [n for step in program.steps for n in step.outputs]
    consumed = {x for step in program.steps for x in step.inputs}
    ys = [n for n in made if n not in consumed or b.chance(0.15)]
    for y in ys:
        program.expect(y.tensor, y.array, y.tensor.name)
    ys = [y for y in ys if y.tensor.dtype.is_floating]
    xs = [n for n in program.nodes if n.is_differentiable][:_MOST_XS]
    if ys and xs:
        _add_gradients(b, ys, xs, is_second_order=b.dtype.size > 2 and b.chance(0.35))


def _add_gradients(b: Builder, ys: Sequence[Node], xs: Sequence[Node], is_second_order: bool) -> None:
    program = b.program
    weights = [_weight(b, y.tensor) for y in ys]
    grads = mtf.gradients([y.tensor for y in ys], [x.tensor for x in xs], [w for w, _ in weights])
    sources = {n: n.value for n in program.nodes if n.is_input}
    watched = [sources[x] for x in xs]
    with tf.GradientTape() as outer:
        outer.watch(watched)
        with tf.GradientTape() as inner:
            inner.watch(watched)
            values = program.run_reference(sources)
            targets = [values[y] for y in ys]
        # TensorFlow's gradient of a lookup is a pair of values and indices.
        found = inner.gradient(targets, watched, [w for _, w in weights])
        expected = [None if g is None else tf.convert_to_tensor(g) for g in found]
    kept = _expect_gradients(program, "gradient", xs, grads, expected)
    if not (is_second_order and kept):
        return
    more = [_weight(b, grads[i]) for i in kept]  # type: ignore[arg-type]
    second = mtf.gradients([grads[i] for i in kept], [x.tensor for x in xs], [w for w, _ in more])  # type: ignore[misc]
    # Unconnected and zero cannot be told apart here: TensorFlow's own gradients differ from one another in this.
    expected = outer.gradient([expected[i] for i in kept], watched, [w for _, w in more])
    for x, grad, value in zip(xs, second, expected, strict=True):
        if grad is not None:
            zeros = np.zeros(x.shape.to_integer_list)
            program.expect(grad, zeros if value is None else value, f"second gradient by {x.tensor.name}")
        else:
            assert value is None or not np.any(value), f"no second gradient by {x.tensor.name}, expected {value}"


def _weight(b: Builder, y: mtf.Tensor) -> tuple[mtf.Tensor, tf.Tensor]:
    array = b.array(y.shape, y.dtype, -1.0, 1.0)
    return mtf.import_tf_tensor(b.mesh, array, y.shape, name="weight"), wide(array)


def _expect_gradients(
    program: Program,
    label: str,
    xs: Sequence[Node],
    grads: Sequence[mtf.Tensor | None],
    expected: Sequence[tf.Tensor | None],
) -> list[int]:
    kept = []
    for i, (x, grad, value) in enumerate(zip(xs, grads, expected, strict=True)):
        what = f"{label} by {x.tensor.name}"
        assert (grad is None) == (value is None), f"{what} is {grad}, expected {value}\n{program}"
        if grad is not None:
            assert (grad.shape, grad.dtype) == (x.shape, x.tensor.dtype), f"{what} is {grad}, not as {x.tensor}"
            program.expect(grad, value, what)
            kept.append(i)
    return kept


def draw_layout(rng: random.Random, program: Program, mesh_shape: mtf.Shape) -> LayoutRules:
    """A layout that is legal for what the user wrote. It must then be legal for the gradients too."""
    forward = program.graph.operations[: program.forward_operations]
    shapes = list(dict.fromkeys(t.shape for o in forward[program.first_operation :] for t in o.outputs))
    beside = neighbours(shapes)
    chosen: dict[str, Axes] = {}
    choices = list(choices_by_dimension(shapes, mesh_shape).items())
    rng.shuffle(choices)
    for name, every in choices:
        taken = {a for other in beside[name] for a in chosen.get(other, ())}
        free = [axes for axes in every if axes and not taken & set(axes)]
        if free and chance(rng, 0.8):
            chosen[name] = rng.choice(free)
    while not _is_legal(forward, mesh_shape, LayoutRules(chosen)):
        del chosen[rng.choice(list(chosen))]
    return LayoutRules(chosen)


def _is_legal(operations: Sequence[mtf.Operation], mesh_shape: mtf.Shape, rules: LayoutRules) -> bool:
    try:
        LayoutTable(mesh_shape, rules).resolve(operations)
    except LayoutError:
        if not rules.rules:
            raise
        return False
    return True


def layout_text(rules: LayoutRules) -> str:
    return ";".join(rules.rule_text(name) for name, _ in rules.rules)
