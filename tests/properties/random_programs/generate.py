"""Whole programs: operations drawn from the table of cases, then gradients, then a legal layout."""

from __future__ import annotations

import collections
import random
import re
import types
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.divisors import divisors
from meshtf.errors import LayoutError
from meshtf.graph.blocks import with_nested
from meshtf.layout import Axes, LayoutRules
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.layouts.rules_by_place import RuleSet
from meshtf.testing.legal_layouts import choices_by_dimension, neighbours
from tests.properties.random_programs.builder import (
    USUAL,
    Builder,
    DrawingError,
    RejectedError,
    Space,
    chance,
    has_gradient,
    wide,
)
from tests.properties.random_programs.cases import CASES, EVERY_CASE, nested
from tests.properties.random_programs.program import Node, Program

_MOST_XS = 4

# Beside these little happens between cores: two in five steps are one of them.
_LINEAR = [
    "einsum of 2", "einsum of 3", "reduce_sum", "reduce_mean", "add", "sub", "negative", "scalar *", "scalar /",
    "reshape", "replace_dimensions", "rename_dimension", "transpose", "broadcast", "stop_gradient", "depend", "add_n",
    "with_layout", "with_layout None", "replicate",
]  # fmt: skip


def random_program(
    rng: random.Random,
    mesh: mtf.Mesh,
    mesh_shape: mtf.Shape,
    first: str,
    prefix: str = "",
    longest: int = 8,
    space: Space = USUAL,
) -> Program:
    """A program that has the case `first` in it, and up to `longest` operations, with gradients.

    Raises:
      RejectedError: no legal one was found; nothing of it is left in the graph.
      DrawingError: a step could not be built.
    """
    count, variables = len(mesh.graph.operations), dict(mesh.graph.variables)
    builder = Builder(rng, mesh, mesh_shape, prefix, space)
    try:
        _grow(builder, first, longest)
        builder.program.forward_operations = len(mesh.graph.operations)
        add_fetches(builder)
    except RejectedError:
        del mesh.graph.operations[count:]
        mesh.graph.variables = variables
        raise
    except Exception as error:
        made = f"{builder.program}\nwhile drawing a program around {first!r}"
        raise DrawingError(f"{type(error).__name__}: {error}\n{made}") from error
    return builder.program


def _grow(b: Builder, first: str, longest: int) -> None:
    # Roundings of narrow dtypes add up, and the reference does not round.
    longest = min(longest, 2) if b.dtype.size == 2 else longest
    names = list(CASES if b.space.is_refused_nothing else EVERY_CASE)
    wanted = [first, *(b.rng.choice(_LINEAR if b.chance(0.4) else names) for _ in range(b.rng.randrange(longest)))]
    b.rng.shuffle(wanted)
    for name in wanted:
        tries = 40 if name == first else 3
        if any(b.attempt(EVERY_CASE[name]) for _ in range(tries)):
            b.program.cases.append(name)
    if first not in b.program.cases:
        raise RejectedError(f"no legal step of case {first!r} was found in 40 tries")


def add_fetches(b: Builder) -> None:
    """Fetches what nothing consumes, some of the rest, and gradients of a random linear function of it all."""
    program = b.program
    made = [n for step in program.steps for n in step.outputs]
    consumed = {x for step in program.steps for x in step.inputs}
    ys = [n for n in made if n not in consumed or b.chance(0.15)]
    for y in ys:
        program.expect(y.tensor, y.array, y.tensor.name, is_exact=y.is_exact)
    ys = [y for y in ys if has_gradient(y.tensor.dtype)]
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
    connected = [(expected[i], w) for i, (_, w) in zip(kept, more, strict=True) if expected[i] is not None]
    expected = outer.gradient([g for g, _ in connected], watched, [w for _, w in connected])
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
    # TensorFlow's program has no branches that are not taken, and no loops that are not entered.
    is_lazy = not nested.CASES.keys().isdisjoint(program.cases) or any(not x.shape.size for x in program.nodes)
    kept = []
    for i, (x, grad, value) in enumerate(zip(xs, grads, expected, strict=True)):
        what = f"{label} by {x.tensor.name}"
        if is_lazy and grad is not None and value is None:
            value = np.zeros(x.shape.to_integer_list)
        assert (grad is None) == (value is None), f"{what} is {grad}, expected {value}\n{program}"
        if grad is not None:
            assert (grad.shape, grad.dtype) == (x.shape, x.tensor.dtype), f"{what} is {grad}, not as {x.tensor}"
            program.expect(grad, value, what)
            kept.append(i)
    return kept


def draw_layout(
    rng: random.Random, program: Program, mesh_shape: mtf.Shape, given: Mapping[str, Axes] = types.MappingProxyType({})
) -> LayoutRules:
    """A layout that is legal for what the user wrote. It must then be legal for the gradients too.

    given: how names are split, or are not, that other programs of the graph have too.

    Raises:
      RejectedError: none is legal beside what is given.
    """
    forward = program.graph.operations[: program.forward_operations]
    shapes = _shapes(program)
    beside = neighbours(shapes)
    choices = list(choices_by_dimension(shapes, mesh_shape, program.max_padding).items())
    chosen: dict[str, Axes] = {name: given[name] for name, _ in choices if name in given}
    rng.shuffle(choices)
    for name, every in choices:
        taken = {a for other in beside[name] for a in chosen.get(other, ())}
        free = [axes for axes in every if axes and not taken & set(axes)]
        if free and name not in given and chance(rng, 0.8):
            chosen[name] = rng.choice(free)
    while not _is_legal(forward, mesh_shape, _split_rules(chosen), program.max_padding):
        own = [name for name in chosen if name not in given]
        if not own:
            raise RejectedError(f"what other programs split by {dict(given)} does not divide")
        del chosen[rng.choice(own)]
    return _split_rules(chosen)


def draw_layouts(rng: random.Random, program: Program, mesh_shape: mtf.Shape) -> tuple[LayoutRules, mtf.MeshOptions]:
    """A layout as `draw_layout` draws it, perhaps with rules for a place, for activations and for kept variables; and
    over how many processes the mesh is laid."""
    own = draw_layout(rng, program, mesh_shape)
    kept, activations = (draw_layout(rng, program, mesh_shape) if chance(rng, 0.3) else None for _ in range(2))
    forward = program.graph.operations[: program.forward_operations]
    variables = program.graph.variables.values()
    # What is laid out by an override may be split over the axes of other rules for the same tensor.
    rules = RuleSet.of_variables(own, activations, variables)
    if not _is_legal(forward, mesh_shape, rules, program.max_padding):
        activations = None
    if chance(rng, 0.3):
        place = re.escape(rng.choice(forward).name)
        placed = LayoutRules([*own.rules, (place, draw_layout(rng, program, mesh_shape))])
        rules = RuleSet.of_variables(placed, activations, variables)
        if _is_legal(forward, mesh_shape, rules, program.max_padding):
            own = placed
    options = {"max_padding": program.max_padding, "num_processes": _processes(own, mesh_shape)}
    return own, mtf.MeshOptions(parameter_layout=kept, activation_layout=activations, **options)


def _processes(rules: LayoutRules, mesh_shape: mtf.Shape) -> int | None:
    """How many share the mesh: by the layout, and not drawn, so that a seed's programs do not depend on it."""
    return random.Random(str(rules)).choice([None, *divisors(mesh_shape.size)[1:]])


def names_in(program: Program) -> list[str]:
    """Of all its dimensions."""
    return list(dict.fromkeys(d.name for shape in _shapes(program) for d in shape))


def _shapes(program: Program) -> list[mtf.Shape]:
    forward = program.graph.operations[program.first_operation : program.forward_operations]
    return list(dict.fromkeys(t.shape for o in with_nested(forward) for t in o.outputs))


def draw_shared(rng: random.Random, programs: Sequence[Program], mesh_shape: mtf.Shape) -> dict[str, Axes]:
    """How the names are split that several programs have: as it divides in all of them, or not at all."""
    counts = collections.Counter(name for program in programs for name in set(names_in(program)))
    shapes = [shape for program in programs for shape in _shapes(program)]
    beside, chosen = neighbours(shapes), dict.fromkeys((name for name, n in counts.items() if n > 1), ())
    for name, every in choices_by_dimension(shapes, mesh_shape).items():
        taken = {a for other in beside[name] for a in chosen.get(other, ())}
        free = [axes for axes in every if axes and not taken & set(axes)]
        if name in chosen and free and chance(rng, 0.8):
            chosen[name] = rng.choice(free)
    return chosen


def _split_rules(chosen: Mapping[str, Axes]) -> LayoutRules:
    return LayoutRules({name: axes for name, axes in chosen.items() if axes})


def _is_legal(
    operations: Sequence[mtf.Operation], mesh_shape: mtf.Shape, rules: LayoutRules | RuleSet, max_padding: float
) -> bool:
    try:
        LayoutTable(mesh_shape, rules, max_padding=max_padding).resolve(operations)
    except LayoutError:
        if isinstance(rules, LayoutRules) and not rules.rules:
            raise
        return False
    return True
