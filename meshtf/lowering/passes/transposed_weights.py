"""Transposes a weight once before a loop, if the loop would read it transposed in each iteration. For processors.

In a loop over micro-batches, or over the steps of a pipeline, the gradient of a dense layer multiplies few rows
[rows:64 d_ff:1024] by its weight [d_model:256 d_ff:1024]. TensorFlow's kernel reads this weight across its order in
memory, anew in each iteration. That takes a tenth longer than with [d_ff:1024 d_model:256], and a quarter longer inside
a program, where the weight has left the caches. So (loop over micro-batches: loop over layers: product with the layer's
part of [layers d_model d_ff]) becomes (transpose to [layers d_ff d_model]; the loops, with parts of that).

While the loop runs the weight is in memory twice. The plan's memory counts this, and `most_bytes_transposed` bounds it.
Another kernel may round the sums in another way.

The pass goes from the outermost loop inwards. It looks at each product of few rows, and follows the operand that it
reads transposed back to a value from outside of the loop. On the way it notes how the part is cut from the whole: by a
loop over a stack, or by an index. Then it makes the transposed whole before the loop, and the same cuts of that.
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
from meshtf.ops.algebra._contraction import Contraction
from meshtf.ops.algebra.elementwise_operation import broadcasting_kernel
from meshtf.ops.indexing.gather import Lookup
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
from meshtf.planning.work_facts import WorkFacts

_LEAST_ITERATIONS = 8
"""The fewest iterations of a loop that is changed. To transpose a matrix takes as long as two to four products save,
and longer if it is larger than the caches."""
_FEWEST_ROWS, _MOST_ROWS = 16, 128
"""The rows of a product that is changed. With one thread, 16 rows save a quarter to a third of its time, 64 an eighth,
and 256 next to nothing. With 4 rows the change may lose time."""

Names: TypeAlias = tuple[str, ...]


def transpose_weights_once(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan in which loops of many iterations read weights in the order in which products take them."""
    if not options.computes_on_processors:
        return plan
    numbers = itertools.count(1 + max((v.index for i, _ in walk(plan.instructions) for v in i.outputs), default=0))
    rewriting = _Rewriting(numbers, options.smallest_transposed, options.most_bytes_transposed)
    changed = dataclasses.replace(plan, instructions=rewriting.rewritten(plan.instructions))
    # Each iteration would still cut out the old parts, although nothing reads them any more.
    return remove_dead_code(changed, options) if rewriting.bytes_left < options.most_bytes_transposed else plan


@dataclasses.dataclass(frozen=True, eq=False)
class _Cut:
    """A step that cuts a part out of a value: a loop or a lookup, along one dimension."""

    by: Loop | Compute
    name: str


@dataclasses.dataclass(frozen=True, eq=False)
class _Read:
    """A product that reads a matrix transposed.

    Attributes:
      product: a product of two operands.
      operand: the number of the operand that is transposed.
      whole: the value from outside of the loop that has the operand as a part.
      cuts: the steps that cut the part out of the whole, in order.
      order: the whole's names in the order in which the product would read its part as it lies in memory.
    """

    product: Compute
    operand: int
    whole: Value
    cuts: tuple[_Cut, ...]
    order: Names


@dataclasses.dataclass(eq=False)
class _Rewriting:
    """The state of the pass. `bytes_left`: bytes of weights that may still be in memory twice."""

    numbers: Iterator[int]
    smallest: int
    bytes_left: int

    def rewritten(self, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
        """Rewrites loops from the outermost inwards, so that a weight is transposed as seldom as possible."""
        changed: list[Instruction] = []
        for instruction in instructions:
            if isinstance(instruction, Loop) and _has_many_iterations(instruction):
                changed += self._with_transposed(instruction)
            else:
                changed.append(instruction)
        return tuple(with_nested_changed(i, self.rewritten) for i in changed)

    def _with_transposed(self, loop: Loop) -> list[Instruction]:
        """Returns the loop, and before it the transposed values that it reads."""
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
        """Returns a part of a transposed value. All readers of the part share one cut."""
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
        """Returns a new value with the given dimensions of a value, in the given order."""
        return dataclasses.replace(
            value,
            index=next(self.numbers),
            shape=Shape([value.shape.dims[n] for n in axes]),
            layout=TensorLayout(tuple(value.layout.axes[n] for n in axes)),
            slice_shape=tuple(value.slice_shape[n] for n in axes),
        )


class _Body:
    """The instructions inside a loop, except in compiled loops inside it, and where their values come from."""

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
        """Yields the products that multiply few rows by a large matrix that is the same in each iteration."""
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
        """Returns the value from outside of the loop that has this value as a part, with the cuts, or None."""
        if value not in self._inside:
            # A pending value is a term of a sum, and is not the weight itself.
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
        """Tells whether it is a view of a value from outside, such as layers in segments. Then it can move
        before the loop.
        """
        is_view = isinstance(instruction, Compute) and instruction.facts.is_view
        return instruction is not None and is_view and self._inside.isdisjoint(instruction.inputs)

    def made_inside(self, value: Value) -> dict[Instruction, None]:
        """Returns the instruction that makes the value, if it is inside the loop."""
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
    """Returns the whole's names, with the part's names in the given order and the others at their places."""
    ordered = iter(order)
    return tuple(next(ordered) if d.name in order else d.name for d in whole.shape)


def _reading(read: _Read, part: Value) -> Compute:
    """Returns the product with this part instead of the operand that it reads transposed."""
    product, names = read.product, tuple(part.shape.dimension_names)
    assert isinstance(product.emit, Contraction)
    inputs = tuple(part if n == read.operand else v for n, v in enumerate(product.inputs))
    return dataclasses.replace(product, inputs=inputs, emit=product.emit.with_names(read.operand, names))


def _looking_up(lookup: Compute, table: Value, part: Value) -> Compute:
    """Returns the same lookup in a table whose dimensions stand in another order."""
    assert isinstance(lookup.emit, Lookup)
    own = lookup.emit
    emit = Lookup.of(table.shape, own.indices, own.dim, part.shape, own.axes)
    return dataclasses.replace(lookup, inputs=(table, *lookup.inputs[1:]), outputs=(part,), emit=emit)


@dataclasses.dataclass(frozen=True, eq=False)
class _Changes:
    """The changes inside a loop.

    Attributes:
      replaced: the new product for each product that is replaced.
      sliced: the parts that each loop cuts in addition.
      lookups: the lookups to add behind each lookup.
      moved: the instructions that move before the loop.
      parts: the part of a transposed value, by the step that cuts it and the value.
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
