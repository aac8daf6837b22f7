"""StableHLO modules of 8-bit products, in which XLA recognizes the products that a GPU computes directly."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

PLATFORM = "cuda"
"""XLA's name for the platform whose programs use 8-bit products."""

_MODULE = """\
module @of_bytes {{
  func.func public @main({parameters}) -> {result} {{
    {lines}
    return {name} : {result}
  }}
}}
"""


@dataclasses.dataclass(frozen=True, slots=True)
class NumberTypes:
    """StableHLO's types for the numbers that bytes stand for.

    Attributes:
      numbers: the 8-bit type of the numbers.
      sums: the type of the result, in which products are summed.
      precision: the precision of products.
    """

    numbers: str
    sums: str
    precision: str


FLOAT8_TYPES = NumberTypes("f8E4M3FN", "f32", "HIGHEST")
"""float8_e4m3. By default, XLA sums products of these in fewer digits than float32 has."""

INT8_TYPES = NumberTypes("i8", "i32", "DEFAULT")
"""int8. Sums are exact in every precision."""


def module_text(
    types: NumberTypes, slices: Sequence[tf.TensorSpec], names: Sequence[Sequence[str]], output: Sequence[str]
) -> str | None:
    """The text of a module that takes bytes, int8, and returns the numbers that they stand for, or their product.

    Args:
      types: the types of the numbers and of the result.
      slices: one or two operands.
      names: the names of their dimensions.
      output: the names of the result's dimensions.

    Returns:
      The text; None if a dimension of one operand alone is summed, or there are more than two operands.
    """
    sizes = {n: size for x, own in zip(slices, names, strict=True) for n, size in zip(own, x.shape, strict=True)}
    given = [[sizes[n] for n in own] for own in names]
    numbers = [_type(size, types.numbers) for size in given]
    lines = [
        f"%n{i} = stablehlo.bitcast_convert %x{i} : ({_type(size, 'i8')}) -> {number}"
        for i, (size, number) in enumerate(zip(given, numbers, strict=True))
    ]
    product = _product(names, output)
    if product is None:
        return None
    attributes, made = product
    before, after = (_type([sizes[n] for n in order], types.sums) for order in (made, output))
    if len(slices) == 1:
        lines.append(f"%y = stablehlo.convert %n0 : ({numbers[0]}) -> {before}")
    else:
        attributes += f", precision = [{types.precision}, {types.precision}]"
        lines.append(f"%y = stablehlo.dot_general %n0, %n1, {attributes} : ({', '.join(numbers)}) -> {before}")
    # A product has its batch, rows and columns in this order. The result may need another order.
    turned = [list(made).index(n) for n in output]
    lines.append(f"%z = stablehlo.transpose %y, dims = {turned} : ({before}) -> {after}")
    parameters = ", ".join(f"%x{i}: {_type(size, 'i8')}" for i, size in enumerate(given))
    return _MODULE.format(parameters=parameters, result=after, lines="\n    ".join(lines), name="%z")


def _product(names: Sequence[Sequence[str]], output: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """The dimensions of a product as attributes, and the names of its result's dimensions, in order."""
    if any(n not in output and sum(n in own for own in names) < 2 for own in names for n in own):
        return None
    if len(names) == 1:
        return "", names[0]
    if len(names) > 2:
        return None
    x, y = names
    batch = [n for n in x if n in y and n in output]
    summed = [n for n in x if n in y and n not in output]
    shared = {*batch, *summed}
    attributes = f"contracting_dims = {_both(x, y, summed)}"
    if batch:
        attributes = f"batching_dims = {_both(x, y, batch)}, {attributes}"
    return attributes, [*batch, *(n for own in names for n in own if n not in shared)]


def _both(x: Sequence[str], y: Sequence[str], names: Sequence[str]) -> str:
    return " x ".join(str([list(own).index(n) for n in names]) for own in (x, y))


def _type(size: Sequence[int], element: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in size)}{element}>"
