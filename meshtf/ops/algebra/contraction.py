"""Local contractions over named dimensions, done as matrix products with as few transposes as possible.

For a [batch, heads, length, d] times b [batch, length2, heads, d], summed over d into [batch, heads, length, length2],
names fall into four groups:

    batch        in a, in b and in the result      batch, heads     one product for each
    rows         in a and the result               length
    columns      in b and the result               length2
    contracted   in a and b alone                  d                summed

A kernel wants each operand as [batch, rows, contracted] or [batch, contracted, rows]; it reads either without a copy.
`MatrixPlan.best` tries the orders that the operands and the result already have, and takes the plan that moves the
fewest elements.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

import opt_einsum
import tensorflow as tf

from meshtf.graph.dtypes import sum_dtype
from meshtf.ops.algebra import wrapping_integers
from meshtf.ops.algebra.matrix_product import matrix_product
from meshtf.planning.local_work.work_facts import MatrixProduct
from meshtf.planning.plan import Core

Names: TypeAlias = tuple[str, ...]

_MATMUL_DTYPES = (tf.bfloat16, tf.float16, tf.float32, tf.float64, tf.int32, tf.int64, tf.complex64, tf.complex128)


class Decoder(Protocol):
    """Reads bytes that stand for numbers."""

    @property
    def dtype(self) -> tf.DType:
        """The dtype of the numbers and of their sums."""
        ...

    def __call__(self, kept: tf.Tensor) -> tf.Tensor:
        """The numbers that the bytes stand for."""
        ...

    def module(
        self, platform: str, slices: Sequence[tf.TensorSpec], names: Sequence[Names], output: Names
    ) -> str | None:
        """The text of a StableHLO module that contracts bytes; None if the platform has no kernel for it."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Contraction:
    """Local work: the product of slices, summed over the names that the result lacks.

    names: the names of each operand's dimensions.
    output: the names of the result's dimensions that operands have, in order.
    size: the result's sizes.
    new: axes of the result that no operand has, along which it is repeated.
    decoder: converts slices of bytes to numbers; None if the slices are numbers.
    """

    names: tuple[Names, ...]
    output: Names
    size: tuple[int, ...]
    new: tuple[int, ...] = ()
    decoder: Decoder | None = None

    def __call__(self, core: Core, *slices: tf.Tensor) -> tf.Tensor:
        if self.decoder is not None:
            slices = tuple(map(self.decoder, slices))
        y = contract(core, slices, self.names, self.output)
        if self.new:
            y = tf.broadcast_to(tf.reshape(y, [1 if i in self.new else n for i, n in enumerate(self.size)]), self.size)
        return y

    def module(self, platform: str, slices: Sequence[tf.TensorSpec]) -> str | None:
        """The text of a StableHLO module that does the same, or None if the platform has no kernel for it."""
        if self.decoder is None or self.new:
            return None
        return self.decoder.module(platform, slices, self.names, self.output)


def contract(core: Core, slices: Sequence[tf.Tensor], names: Sequence[Names], output: Names) -> tf.Tensor:
    """Sums the product of slices over every name that `output` lacks. Output names must be among the inputs'."""
    sizes = {n: s for x, own in zip(slices, names, strict=True) for n, s in zip(own, x.shape.as_list(), strict=True)}
    operands = list(zip(slices, names, strict=True))
    for pair in _order(names, output, sizes):
        taken = [operands.pop(i) for i in sorted(pair, reverse=True)][::-1]
        needed = {*output, *(n for _, own in operands for n in own)}
        operands.append(_contract_some(core, taken, needed, output if not operands else None, sizes))
    (x, own) = operands[0]
    return _summed_and_ordered(core, x, own, output)


def matrix_products(names: Sequence[Names], output: Names, sizes: Mapping[str, int]) -> tuple[MatrixProduct, ...]:
    """The matrix products that `contract` computes, in order. Elementwise products are not included."""
    operands, found = list(names), []
    for pair in _order(names, output, sizes):
        taken = [operands.pop(i) for i in sorted(pair, reverse=True)][::-1]
        needed = {*output, *(n for own in operands for n in own)}
        if len(taken) == 1:
            operands.append(taken[0])
            continue
        # A name that nothing else needs is summed within its own operand first.
        a = tuple(n for n in taken[0] if n in needed or n in taken[1])
        b = tuple(n for n in taken[1] if n in needed or n in taken[0])
        if _is_matrix_product(a, b, needed):
            # Names of the batch, of the rows, of the columns, and those that the product sums.
            groups = (
                [n for n in a if n in b and n in needed],
                [n for n in a if n not in b],
                [n for n in b if n not in a],
                [n for n in a if n in b and n not in needed],
            )
            plan = MatrixPlan.best(a, b, _wanted(a, b, needed, None if operands else output), sizes)
            lengths = (math.prod(sizes[n] for n in group) for group in groups)
            found.append(MatrixProduct(*lengths, transposed=plan.transposed(sizes)))
        operands.append(_wanted(a, b, needed, None if operands else output))
    return tuple(found)


def _order(names: Sequence[Names], output: Names, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    """The order in which to contract operands, pair by pair (Smith and Gray 2018, opt_einsum)."""
    if len(names) <= 2:
        return [tuple(range(len(names)))]
    symbol = {n: opt_einsum.get_symbol(i) for i, n in enumerate(sizes)}
    equation = ",".join("".join(symbol[n] for n in own) for own in names)
    equation += "->" + "".join(symbol[n] for n in output)
    shapes = [tuple(sizes[n] for n in own) for own in names]
    path, _ = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize="auto")
    return [tuple(pair) for pair in path]


def _contract_some(
    core: Core,
    taken: Sequence[tuple[tf.Tensor, Names]],
    needed: set[str],
    output: Names | None,
    sizes: Mapping[str, int],
) -> tuple[tf.Tensor, Names]:
    if len(taken) == 1:
        return taken[0]
    (a, a_names), (b, b_names) = taken
    # Names that only one operand has are summed first. The product is then smaller.
    a, a_names = _summed(core, a, a_names, needed | set(b_names))
    b, b_names = _summed(core, b, b_names, needed | set(a_names))
    wanted = _wanted(a_names, b_names, needed, output)
    if a.dtype in _MATMUL_DTYPES and _is_matrix_product(a_names, b_names, needed):
        return _matrix_product(core, a, b, MatrixPlan.best(a_names, b_names, wanted, sizes)), wanted
    # The operand with all names keeps its order, so that only the smaller one is transposed.
    longest = max(a_names, b_names, key=len)
    full = longest if {*a_names, *b_names} <= {*longest} else tuple(dict.fromkeys((*wanted, *a_names, *b_names)))
    narrow = a.dtype
    if any(n not in wanted for n in full):  # a product and its sum are rounded once, together
        a, b = tf.cast(a, sum_dtype(narrow)), tf.cast(b, sum_dtype(narrow))
    product = wrapping_integers.product(_expanded(core, a, a_names, full), _expanded(core, b, b_names, full))
    return tf.cast(_summed_and_ordered(core, product, full, wanted), narrow), wanted


def _wanted(a: Names, b: Names, needed: Collection[str], output: Names | None) -> Names:
    """Names of the product of two operands, in order. For the last product, they are the output's names."""
    return output or tuple(n for n in dict.fromkeys((*a, *b)) if n in needed)


def _is_matrix_product(a: Names, b: Names, needed: set[str]) -> bool:
    """Whether something is contracted, and the result is more than a batch of scalars (those are faster as a sum)."""
    is_contracted = any(n in b and n not in needed for n in a)
    has_rows_or_columns = any((n in a) != (n in b) for n in (*a, *b))
    return is_contracted and has_rows_or_columns


@dataclasses.dataclass(frozen=True, slots=True)
class MatrixPlan:
    """How two operands become matrices: their orders of names, whether they are read transposed, the result's order."""

    batch: Names
    rows: Names
    columns: Names
    contracted: Names
    a_order: Names
    b_order: Names
    transpose_a: bool
    transpose_b: bool
    is_swapped: bool
    output: Names
    a_names: Names
    b_names: Names

    @classmethod
    def best(cls, a: Names, b: Names, output: Names, sizes: Mapping[str, int]) -> MatrixPlan:
        """The plan that transposes the fewest elements."""
        batch = tuple(n for n in output if n in a and n in b)
        rows = tuple(n for n in a if n in output and n not in b)
        columns = tuple(n for n in b if n in output and n not in a)
        contracted = tuple(n for n in a if n in b and n not in output)
        choices = itertools.product(
            _orders(batch, output, a, b), _orders(rows, a, output), _orders(columns, b, output),
            _orders(contracted, a, b),
        )  # fmt: skip
        plans = [cls._made(a, b, output, *choice) for choice in choices]
        return min(plans, key=lambda plan: plan.transposed(sizes))

    @classmethod
    def _made(
        cls, a: Names, b: Names, output: Names, batch: Names, rows: Names, columns: Names, contracted: Names
    ) -> MatrixPlan:
        # An operand that must be moved keeps its innermost name innermost: such transposes are the fast ones.
        transpose_a = a == batch + contracted + rows or (a != batch + rows + contracted and a[-1] in rows)
        transpose_b = b == batch + columns + contracted or (b != batch + contracted + columns and b[-1] in contracted)
        return cls(
            batch, rows, columns, contracted,
            a_order=batch + contracted + rows if transpose_a else batch + rows + contracted,
            b_order=batch + columns + contracted if transpose_b else batch + contracted + columns,
            transpose_a=transpose_a, transpose_b=transpose_b,
            is_swapped=bool(columns) and bool(rows) and output[-1] in rows,
            output=output, a_names=a, b_names=b,
        )  # fmt: skip

    @property
    def product(self) -> Names:
        """Names of the matrix product, in order."""
        return self.batch + (self.columns + self.rows if self.is_swapped else self.rows + self.columns)

    def transposed(self, sizes: Mapping[str, int]) -> int:
        """The number of elements whose order in memory changes."""
        moved = [(self.a_names, self.a_order), (self.b_names, self.b_order), (self.output, self.product)]
        return sum(math.prod(sizes[n] for n in names) for names, order in moved if names != order)


def _matrix_product(core: Core, a: tf.Tensor, b: tf.Tensor, plan: MatrixPlan) -> tf.Tensor:
    sizes = dict(zip(plan.a_names, a.shape.as_list(), strict=True))
    sizes |= dict(zip(plan.b_names, b.shape.as_list(), strict=True))
    groups = [plan.batch, plan.rows, plan.columns, plan.contracted]
    batch, m, n, k = (math.prod(sizes[name] for name in group) for group in groups)
    lead = [batch] if plan.batch and batch != 1 else []
    a = core.reshaped(_ordered(core, a, plan.a_names, plan.a_order), lead + ([k, m] if plan.transpose_a else [m, k]))
    b = core.reshaped(_ordered(core, b, plan.b_names, plan.b_order), lead + ([n, k] if plan.transpose_b else [k, n]))
    if plan.is_swapped:
        product = matrix_product(core, b, a, transpose_a=not plan.transpose_b, transpose_b=not plan.transpose_a)
    else:
        product = matrix_product(core, a, b, transpose_a=plan.transpose_a, transpose_b=plan.transpose_b)
    product = tf.cast(product, a.dtype)
    shape = [sizes[name] for name in plan.product]
    return _ordered(core, core.reshaped(product, shape), plan.product, plan.output)


def _orders(group: Names, *like: Names) -> list[Names]:
    return list(dict.fromkeys(tuple(n for n in names if n in group) for names in like))


def _summed(core: Core, x: tf.Tensor, names: Names, kept: set[str]) -> tuple[tf.Tensor, Names]:
    axes = [i for i, n in enumerate(names) if n not in kept]
    if not axes:
        return x, names
    total = core.summed(tf.cast(x, sum_dtype(x.dtype)), axes)
    return tf.cast(total, x.dtype), tuple(n for n in names if n in kept)


def _summed_and_ordered(core: Core, x: tf.Tensor, names: Names, output: Names) -> tf.Tensor:
    x, names = _summed(core, x, names, set(output))
    return _ordered(core, x, names, output)


def _ordered(core: Core, x: tf.Tensor, names: Names, order: Names) -> tf.Tensor:
    return x if names == order else core.transposed(x, [names.index(n) for n in order])


def _expanded(core: Core, x: tf.Tensor, names: Names, full: Names) -> tf.Tensor:
    order = tuple(n for n in full if n in names)
    x = _ordered(core, x, names, order)
    sizes = dict(zip(order, x.shape.as_list(), strict=True))
    return core.reshaped(x, [sizes.get(n, 1) for n in full])
