"""The StableHLO of float8 numbers and their products, in which XLA finds the products that a GPU does at once."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

PLATFORM = "cuda"
"""The platform whose programs have products of float8, by XLA's name for it."""

_MODULE = """\
module @float8 {{
  func.func public @main({parameters}) -> {result} {{
    {lines}
    return {name} : {result}
  }}
}}
"""


def module_text(slices: Sequence[tf.TensorSpec], names: Sequence[Sequence[str]], output: Sequence[str]) -> str | None:
    """The text of a module that takes bytes of float8 numbers, int8, and gives their numbers or product in float32.

    The product has the highest precision: by default, XLA sums products of float8 in fewer digits than float32 has.

    Args:
      slices: one or two operands.
      names: the names of their dimensions.
      output: the names of the result's dimensions.

    Returns:
      The text; None if a dimension of one operand alone is summed, or there are more operands.
    """
    sizes = {n: size for x, own in zip(slices, names, strict=True) for n, size in zip(own, x.shape, strict=True)}
    given = [[sizes[n] for n in own] for own in names]
    lines = [
        f"%f{i} = stablehlo.bitcast_convert %x{i} : ({_type(size, 'i8')}) -> {_type(size, 'f8E4M3FN')}"
        for i, size in enumerate(given)
    ]
    product = _product(names, output)
    if product is None:
        return None
    attributes, made = product
    if len(slices) == 1:
        lines.append(f"%y = stablehlo.convert %f0 : ({_type(given[0], 'f8E4M3FN')}) -> {_type(given[0], 'f32')}")
    else:
        types = ", ".join(_type(size, "f8E4M3FN") for size in given)
        result = _type([sizes[n] for n in made], "f32")
        lines.append(f"%y = stablehlo.dot_general %f0, %f1, {attributes} : ({types}) -> {result}")
    size = [sizes[n] for n in output]
    turned = [list(made).index(n) for n in output]
    before, after = _type([sizes[n] for n in made], "f32"), _type(size, "f32")
    lines.append(f"%z = stablehlo.transpose %y, dims = {turned} : ({before}) -> {after}")
    parameters = ", ".join(f"%x{i}: {_type(size, 'i8')}" for i, size in enumerate(given))
    return _MODULE.format(parameters=parameters, result=after, lines="\n    ".join(lines), name="%z")


def _product(names: Sequence[Sequence[str]], output: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """The attributes of a product, and the names of its result's dimensions, in order."""
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
    attributes = [f"contracting_dims = {_both(x, y, summed)}", "precision = [HIGHEST, HIGHEST]"]
    if batch:
        attributes.insert(0, f"batching_dims = {_both(x, y, batch)}")
    return ", ".join(attributes), [*batch, *(n for own in names for n in own if n not in shared)]


def _both(x: Sequence[str], y: Sequence[str], names: Sequence[str]) -> str:
    return " x ".join(str([list(own).index(n) for n in names]) for own in (x, y))


def _type(size: Sequence[int], element: str) -> str:
    return f"tensor<{''.join(f'{n}x' for n in size)}{element}>"
