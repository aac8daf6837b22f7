"""Weights that a loop reads transposed in each iteration are transposed once, before it, on processors.

In a loop over micro-batches, or over the steps of a pipeline, the gradient of a dense layer multiplies few rows
[rows:64 d_ff:1024] by its weight [d_model:256 d_ff:1024]. TensorFlow's kernel would read that across its order in
memory, each time anew, and take a tenth longer than with [d_ff:1024 d_model:256]; in the midst of a program, with the
weight out of the caches, a quarter. So (loop over micro-batches: loop over layers: product with the layer's part of
[layers d_model d_ff]) becomes (transpose to [layers d_ff d_model]; the loops, with parts of that).

The weight is then there twice while the loop runs, which the plan's memory counts, and `most_bytes_transposed` bounds.
Sums may be rounded otherwise, as by any other kernel.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import TensorLayout
from meshtf.lowering.passes.dead_code import remove_dead_code
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.ops.algebra.contraction import Contraction
from meshtf.ops.algebra.elementwise_operation import broadcasting_kernel
from meshtf.ops.indexing.gather import Lookup
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import (
    Compute,
    Instruction,
    Loop,
    Plan,
    Sliced,
    Value,
    nested,
    walk,
    with_nested_changed,
)

_LEAST_ITERATIONS = 8
"""To transpose a matrix takes as long as two to four products save, or more where it is larger than the caches."""
_FEWEST_ROWS, _MOST_ROWS = 16, 128
"""Of a product that saves something to speak of, with one thread: a quarter to a third with 16, an eighth with 64, with
256 next to nothing; with 4 it may lose."""

Names: TypeAlias = tuple[str, ...]


def transpose_weights_once(plan: Plan, options: PassOptions) -> Plan:
    """The plan in which loops of many iterations read weights in the order in which products take them."""
    if not options.computes_on_processors:
        return plan
    numbers = itertools.count(1 + max((v.index for i, _ in walk(plan.instructions) for v in i.outputs), default=0))
    rewriting = _Rewriting(numbers, options.smallest_transposed, options.most_bytes_transposed)
    changed = dataclasses.replace(plan, instructions=rewriting.rewritten(plan.instructions))
    return remove_dead_code(changed, options) if rewriting.bytes_left < options.most_bytes_transposed else plan


@dataclasses.dataclass(frozen=True, eq=False)
class _Cut:
    """Of a part that has all dimensions of a value but one: what cuts it out, a loop or a lookup."""

    by: Loop | Compute
    name: str


@dataclasses.dataclass(frozen=True, eq=False)
class _Read:
    """A product that reads a matrix transposed.

    Attributes:
      product: of two operands.
      operand: the number of the one that is transposed.
      whole: from outside of the loop, of which it is a part.
      cuts: how the part is cut out of the whole, one after the other: by a loop inside the loop, or by an index.
      order: of the whole's names, in which the part is read as it is.
    """

    product: Compute
    operand: int
    whole: Value
    cuts: tuple[_Cut, ...]
    order: Names


@dataclasses.dataclass(eq=False)
class _Rewriting:
    """The pass. `bytes_left`: that may still be there twice."""

    numbers: Iterator[int]
    smallest: int
    bytes_left: int

    def rewritten(self, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
        """Loops from the outermost inwards, so that a weight is transposed as seldom as can be."""
        changed: list[Instruction] = []
        for instruction in instructions:
            if isinstance(instruction, Loop) and _has_many_iterations(instruction):
                changed += self._with_transposed(instruction)
            else:
                changed.append(instruction)
        return tuple(with_nested_changed(i, self.rewritten) for i in changed)

    def _with_transposed(self, loop: Loop) -> list[Instruction]:
        """The loop, and before it what it reads transposed."""
        transposed: dict[tuple[Value, Names], Compute] = {}
        body, changes = _Body(loop), _Changes()
        for read in body.reads(self.smallest):
            key = (read.whole, read.order)
            if key not in transposed:
                if read.whole.slice_bytes > self.bytes_left:
                    continue
                self.bytes_left -= read.whole.slice_bytes
                transposed[key] = self._transposing(read)
                changes.moved.update(body.made_inside(read.whole))
            part = transposed[key].outputs[0]
            for cut in read.cuts:
                part = self._cut(part, cut, changes)
            changes.replaced[read.product] = _reading(read, part)
        return [*changes.moved, *transposed.values(), changes.applied(loop)] if transposed else [loop]

    def _transposing(self, read: _Read) -> Compute:
        whole = read.whole
        axes = [whole.shape.axis(name) for name in read.order]
        output = self._ordered(whole, axes)
        emit = broadcasting_kernel(tf.identity, [whole.shape], output.shape, output.slice_shape)
        facts = WorkFacts(kernel=tf.identity)
        return dataclasses.replace(
            read.product, kind="transpose", inputs=(whole,), outputs=(output,), emit=emit, flops=0, facts=facts
        )

    def _cut(self, whole: Value, cut: _Cut, changes: _Changes) -> Value:
        """A part of a transposed value, which is cut once for all that read it."""
        if (cut.by, whole) not in changes.parts:
            axis = whole.shape.axis(cut.name)
            part = self._ordered(whole, [n for n in range(whole.shape.ndims) if n != axis])
            changes.parts[cut.by, whole] = part
            if isinstance(cut.by, Loop):
                changes.sliced.setdefault(cut.by, []).append(Sliced(whole, axis, part))
            else:
                changes.lookups.setdefault(cut.by, []).append(_looking_up(cut.by, whole, part))
        return changes.parts[cut.by, whole]

    def _ordered(self, value: Value, axes: Sequence[int]) -> Value:
        """A new value with these of the dimensions."""
        return dataclasses.replace(
            value,
            index=next(self.numbers),
            shape=Shape([value.shape.dims[n] for n in axes]),
            layout=TensorLayout(tuple(value.layout.axes[n] for n in axes)),
            slice_shape=tuple(value.slice_shape[n] for n in axes),
        )


class _Body:
    """What is inside of a loop, but not of loops there that are compiled, and where it comes from."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._makers: dict[Value, Instruction] = {}
        self._cuts: dict[Value, tuple[Loop, Sliced]] = {}
        self._inside: set[Value] = set(_bound(loop))
        self._products: list[Compute] = []
        self._look_into(loop.body)

    def _look_into(self, instructions: Sequence[Instruction]) -> None:
        for i in instructions:
            self._makers.update((v, i) for v in i.outputs)
            self._inside.update(i.outputs)
            if isinstance(i, Compute) and isinstance(i.emit, Contraction):
                self._products.append(i)
            elif isinstance(i, Loop):
                self._inside.update(_bound(i))
                self._cuts.update((s.part, (i, s)) for s in i.sliced)
            if not isinstance(i, Loop) or i.compilation is None:
                self._look_into(nested(i))

    def reads(self, smallest: int) -> Iterator[_Read]:
        """The products of few rows by matrices, at least so large, that are the same in each iteration."""
        for product in self._products:
            sizes = {d.name: n for v in product.inputs for d, n in zip(v.shape, v.slice_shape, strict=True)}
            read = product.emit.read_transposed(sizes) if isinstance(product.emit, Contraction) else None
            if read is None or len(product.facts.products) != 1:
                continue
            operand, order = read
            (matrices,) = product.facts.products
            rows = matrices.rows if operand == 1 else matrices.columns
            is_large = matrices.rows * matrices.columns * matrices.contracted >= smallest * rows
            if product.inputs[operand].dtype != tf.float32 or not is_large or not _FEWEST_ROWS <= rows <= _MOST_ROWS:
                continue
            if (source := self._source(product.inputs[operand])) is not None:
                whole, cuts = source
                yield _Read(product, operand, whole, cuts, _order_of_whole(whole, order))

    def _source(self, value: Value) -> tuple[Value, tuple[_Cut, ...]] | None:
        """The value from outside that it is, or a part of."""
        if value not in self._inside:
            return None if value.pending else (value, ())
        if value in self._cuts:
            loop, cut = self._cuts[value]
            return self._cut_from(cut.whole, _Cut(loop, cut.whole.shape.dims[cut.dim].name))
        maker = self._makers.get(value)
        if not isinstance(maker, Compute):
            return None
        if isinstance(maker.emit, Lookup):
            name = maker.emit.dim.name
            names = [n for n in maker.inputs[0].shape.dimension_names if n != name]
            is_part = not value.pending and value.shape.dimension_names == names
            return self._cut_from(maker.inputs[0], _Cut(maker, name)) if is_part else None
        if maker.facts.kernel is tf.identity and maker.facts.is_view:
            return self._source(maker.inputs[0])
        return (value, ()) if self._is_movable(maker) and not value.pending else None

    def _is_movable(self, instruction: Instruction | None) -> bool:
        """Whether it is a view of what is outside, as of layers in segments, and can be outside itself."""
        is_view = isinstance(instruction, Compute) and instruction.facts.is_view
        return instruction is not None and is_view and self._inside.isdisjoint(instruction.inputs)

    def made_inside(self, value: Value) -> dict[Instruction, None]:
        """What makes it, if that is inside."""
        return dict.fromkeys([self._makers[value]] if value in self._makers else [])

    def _cut_from(self, whole: Value, cut: _Cut) -> tuple[Value, tuple[_Cut, ...]] | None:
        source = self._source(whole)
        return None if source is None else (source[0], (*source[1], cut))


def _bound(loop: Loop) -> list[Value]:
    asked = loop.condition.entering if loop.condition is not None else ()
    return [loop.index, *(c.entering for c in loop.carried), *(s.part for s in loop.sliced), *asked]


def _has_many_iterations(loop: Loop) -> bool:
    is_known = loop.count is None and loop.condition is None and loop.is_bounded and loop.compilation is None
    return is_known and loop.length >= _LEAST_ITERATIONS


def _order_of_whole(whole: Value, order: Names) -> Names:
    """Names of the whole, those of the part in this order, and the others where they are."""
    ordered = iter(order)
    return tuple(next(ordered) if d.name in order else d.name for d in whole.shape)


def _reading(read: _Read, part: Value) -> Compute:
    """The product that reads this in place of what it reads transposed."""
    product, names = read.product, tuple(part.shape.dimension_names)
    assert isinstance(product.emit, Contraction)
    inputs = tuple(part if n == read.operand else v for n, v in enumerate(product.inputs))
    return dataclasses.replace(product, inputs=inputs, emit=product.emit.with_names(read.operand, names))


def _looking_up(lookup: Compute, table: Value, part: Value) -> Compute:
    """The lookup in a table whose dimensions stand in another order."""
    assert isinstance(lookup.emit, Lookup)
    own = lookup.emit
    emit = Lookup.of(table.shape, own.indices, own.dim, part.shape, own.axes)
    return dataclasses.replace(lookup, inputs=(table, *lookup.inputs[1:]), outputs=(part,), emit=emit)


@dataclasses.dataclass(frozen=True, eq=False)
class _Changes:
    """Of what is inside of a loop.

    Attributes:
      replaced: products, by those that they replace.
      sliced: what loops cut besides.
      lookups: others beside lookups.
      moved: what is no more there, but before the loop.
      parts: what is cut out of transposed values, by what cuts them and the value.
    """

    replaced: dict[Instruction, Instruction] = dataclasses.field(default_factory=dict)
    sliced: dict[Instruction, list[Sliced]] = dataclasses.field(default_factory=dict)
    lookups: dict[Instruction, list[Compute]] = dataclasses.field(default_factory=dict)
    moved: dict[Instruction, None] = dataclasses.field(default_factory=dict)
    parts: dict[tuple[Instruction, Value], Value] = dataclasses.field(default_factory=dict)

    def applied(self, loop: Loop) -> Loop:
        sliced = (*loop.sliced, *self.sliced.get(loop, ()))
        return dataclasses.replace(loop, sliced=sliced, body=self._applied_to(loop.body))

    def _applied_to(self, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
        changed: list[Instruction] = []
        for i in instructions:
            if i in self.moved:
                continue
            inside = self.applied(i) if isinstance(i, Loop) else with_nested_changed(i, self._applied_to)
            changed += [self.replaced.get(i, inside), *self.lookups.get(i, ())]
        return tuple(changed)
