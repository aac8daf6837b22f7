"""Contractions by name: einsum and matmul.

A contraction over a split dimension leaves a term of a sum on each core. Take the layout batch:rows hidden:cols, on a
mesh rows:2 cols:2:

    x [batch:8/rows hidden:4/cols] . w [hidden:4/cols out:6] -> y [batch:8/rows out:6], with a sum pending over cols

Each core multiplies its slices, [4, 2] and [2, 6]. The terms are added where their sum is needed, which may be later
(`planning/pending_sums.py`).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from typing import Any, overload

from meshtf.call_sites import language_function
from meshtf.dimension import Shape, ShapeLike, convert_to_shape
from meshtf.errors import GraphError, ShapeError, UsageError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor, check_tensors, same_dtype
from meshtf.layout import Axes
from meshtf.ops.algebra.broadcasting import union
from meshtf.ops.algebra.contraction import Contraction, Decoder, matrix_products
from meshtf.ops.algebra.elementwise_operation import conjugate, without_redundant_broadcasts
from meshtf.ops.algebra.reduction import reduce_sum
from meshtf.ops.algebra.transpose_and_broadcast import broadcast_to
from meshtf.ops.inputs.scalars import check_number
from meshtf.patterns.contraction import einsum_shape
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.layouts.padding import Fill
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.planner import Planner
from meshtf.planning.splits import choose_splits, layout_over

_MISSPELT = 0.8  # the lowest similarity (of 0 to 1) at which one name counts as a misspelling of another


class EinsumOperation(Operation):
    """The product of tensors, summed over the dimensions that the output lacks.

    With a `decoder`, the tensors hold bytes that encode numbers, such as float8, and the output has the decoder's
    dtype. The byte 0 must encode the number 0.
    """

    is_product = True
    takes_padding = True
    mapped = "by name"

    def __init__(
        self, inputs: Sequence[Tensor], output_shape: Shape, name: str = "einsum", *, decoder: Decoder | None = None
    ) -> None:
        dtype = same_dtype(inputs)
        super().__init__(inputs, [(output_shape, dtype if decoder is None else decoder.dtype)], name=name)
        self._decoder = decoder
        self._splits: tuple[LayoutTable, dict[str, Axes]] | None = None

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        dy = check_tensor(grad_ys[0])
        others = [[x for j, x in enumerate(self.inputs) if j != i] for i in range(len(self.inputs))]
        return [_product([dy, *map(conjugate, own)], x.shape) for x, own in zip(self.inputs, others, strict=True)]

    def pending_axes(self, layouts: LayoutTable) -> tuple[str, ...]:
        splits = self._chosen_splits(layouts)
        return tuple(a for name, axes in splits.items() if not self.outputs[0].shape.has(name) for a in axes)

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        splits = self._chosen_splits(planner.layouts)
        # Padding along summed dimensions must be zero. Along others it only reaches the result's padding.
        summed = Fill(0, frozenset(name for name in splits if not output.shape.has(name)))
        values = [planner.read(x, layout_over(x.shape, splits), summed) for x in self.inputs]
        layout = layout_over(output.shape, splits)
        names = tuple(tuple(x.shape.dimension_names) for x in self.inputs)
        wanted = tuple(d.name for d in output.shape if any(x.shape.has(d.name) for x in self.inputs))
        new = tuple(i for i, d in enumerate(output.shape) if d.name not in wanted)
        size = layout.slice_shape(output.shape, planner.mesh_shape)
        emit = Contraction(names, wanted, size, new, self._decoder)
        local = {d.name: n for v in values for d, n in zip(v.shape, v.slice_shape, strict=True)}
        spec = (output.shape, output.dtype, layout)
        pending = self.pending_axes(planner.layouts)
        flops = 2 * math.prod(local.values())
        products = matrix_products(names, wanted, local)
        sums = any(name not in wanted for name in local)
        facts = WorkFacts(products=products, is_reduction=sums and not products, multiplies=not sums and not products)
        (value,) = planner.compute("einsum", emit, values, [spec], pending=pending, flops=flops, facts=facts)
        planner.write(output, value)

    def _chosen_splits(self, layouts: LayoutTable) -> dict[str, Axes]:
        # `pending_axes` and `lower` must agree on the splits.
        if self._splits is None or self._splits[0] is not layouts:
            self._splits = (layouts, choose_splits(self.inputs, self.outputs[0], layouts))
        return self._splits[1]


@overload
def einsum(
    xs: Sequence[Tensor],
    output_shape: ShapeLike | None = None,
    reduced_dims: ShapeLike | None = None,
    name: str | None = None,
) -> Tensor: ...
@overload
def einsum(xs: str, *operands: Tensor, name: str | None = None) -> Tensor: ...
@language_function
def einsum(
    xs: Sequence[Tensor] | str,
    *operands: Any,
    output_shape: ShapeLike | None = None,
    reduced_dims: ShapeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The product of any number of tensors, summed over dimensions by name.

    You give the tensors as a list, or one by one after a pattern. A pattern such as "batch hidden, hidden vocab ->
    batch vocab" names the dimensions of each tensor, in any order, and the result's. `...` stands for the dimensions
    that a term does not name. A pattern without an arrow gives the same result as no `output_shape`.

    Args:
      xs: tensors of one dtype, or a pattern. Dimensions of the same name are one index.
      operands: the tensors of a pattern. If `xs` is a list, these are the next parameters, by position.
      output_shape: dimensions of the result, in order; one that no operand has is broadcast.
      reduced_dims: dimensions to sum over. The others are kept, in order of first appearance.
        Without this and `output_shape`, the dimensions that only one operand has are kept.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, a reduced dimension is in no operand, or the two arguments contradict each other; or
        the pattern does not fit the tensors.

    Examples:
      >>> w = mtf.ones(mesh, "hidden:8 vocab:16")
      >>> mtf.einsum("batch hidden, hidden vocab -> batch vocab", x, w)
      einsum [batch:4 vocab:16] float32
      >>> mtf.einsum([x, w], output_shape="batch vocab")
      einsum_1 [batch:4 vocab:16] float32
      >>> mtf.einsum([x, w])
      einsum_2 [batch:4 vocab:16] float32
      >>> mtf.einsum("... hidden, ... hidden -> ...", x, x)
      einsum_3 [batch:4] float32
    """
    if not isinstance(xs, str):
        if operands:
            given = _by_position(operands, output_shape=output_shape, reduced_dims=reduced_dims, name=name)
            return _einsum(xs, **given)
        return _einsum(xs, output_shape, reduced_dims, name)
    if output_shape is not None or reduced_dims is not None:
        raise UsageError("a pattern already says what the result is; leave out output_shape and reduced_dims")
    if not operands or any(isinstance(x, list | tuple) for x in operands):
        raise UsageError(f"the tensors come after the pattern, one by one: ({xs!r}, x, y)")
    tensors = [check_tensor(x) for x in operands]
    return _einsum(tensors, einsum_shape(xs, tuple(x.shape for x in tensors)), None, name)


def _by_position(given: Sequence[Any], **named: Any) -> dict[str, Any]:
    """The parameters after a list of tensors, some of which are given by position."""
    if isinstance(given[0], Tensor):
        raise GraphError("the tensors come in a list, or after a pattern: write mtf.einsum([x, y], output_shape=[...])")
    if isinstance(given[0], str) and "->" in given[0]:
        raise UsageError(f"the pattern comes first, and then the tensors, one by one: ({given[0]!r}, x, y)")
    if len(given) > len(named):
        raise UsageError(f"too many positional arguments; its parameters are xs, {', '.join(named)}")
    placed = dict(zip(named, given, strict=False))
    if twice := [key for key in placed if named[key] is not None]:
        raise UsageError(f"multiple values for argument '{twice[0]}'")
    return named | placed


def _einsum(
    xs: Sequence[Tensor], output_shape: ShapeLike | None, reduced_dims: ShapeLike | None, name: str | None
) -> Tensor:
    xs = check_tensors(xs)
    if not xs:
        raise ShapeError("einsum of no tensors; give at least one")
    dtype = same_dtype(xs)
    if len(xs) > 1:
        check_number(dtype)
    shape = _output_shape([x.shape for x in xs], output_shape, reduced_dims)
    _check_spelling(shape, union([x.shape for x in xs]))
    return _product(xs, shape, name)


def _product(xs: Sequence[Tensor], shape: Shape, name: str | None = None) -> Tensor:
    if len(xs) == 1:
        return _einsum_of_one(xs[0], shape)
    return EinsumOperation(without_redundant_broadcasts(xs), shape, name or "einsum").outputs[0]


@language_function
def matmul(
    a: Tensor,
    b: Tensor,
    output_shape: ShapeLike | None = None,
    reduced_dims: ShapeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The einsum of two tensors.

    Args:
      a: a tensor.
      b: a tensor.
      output_shape: the result's dimensions, in order; all others are summed.
      reduced_dims: dimensions to sum over, without an `output_shape`; by default those that both have.
      name: the operation's name.

    Raises:
      ShapeError: a dimension is missing, or has two sizes.
      DtypeError: the dtypes differ, or are bool.

    Examples:
      >>> w = mtf.ones(mesh, "hidden:8 vocab:16")
      >>> mtf.matmul(x, w)
      matmul [batch:4 vocab:16] float32
      >>> mtf.matmul(x, w, reduced_dims="hidden batch")
      matmul_1 [vocab:16] float32
    """
    return einsum([a, b], output_shape, reduced_dims, name or "matmul")


def _einsum_of_one(x: Tensor, shape: Shape) -> Tensor:
    kept = Shape([d for d in shape if x.shape.has(d.name)])
    return broadcast_to(reduce_sum(x, output_shape=kept), shape, "einsum")


def _output_shape(shapes: Sequence[Shape], output_shape: ShapeLike | None, reduced_dims: ShapeLike | None) -> Shape:
    everything = union(shapes)
    wanted = convert_to_shape(output_shape, everything)
    for dim in wanted or ():
        if everything.has(dim.name):
            everything.axis(dim)
    if reduced_dims is None:
        if wanted is not None:
            return wanted
        return Shape([d for d in everything if sum(s.has(d.name) for s in shapes) == 1])
    reduced = everything.only(reduced_dims)
    kept = everything - reduced
    if wanted is None:
        return kept
    if {d.name for d in kept} != {d.name for d in wanted}:
        raise ShapeError(f"output_shape [{wanted}] contradicts reduced_dims [{reduced}], which leave [{kept}]")
    return wanted


def _check_spelling(output_shape: Shape, everything: Shape) -> None:
    """Checks the output's new dimensions, which are broadcast: none may look like an operand's that would be summed.

    Raises:
      ShapeError: one does.
    """
    summed = [d for d in everything if not output_shape.has(d.name)]
    for dim in output_shape:
        alike = [d.name for d in summed if d.size == dim.size]
        if not everything.has(dim.name) and (found := difflib.get_close_matches(dim.name, alike, 1, _MISSPELT)):
            raise ShapeError(
                f'output dimension "{dim.name}" is in no operand; did you mean "{found[0]}"? '
                f"(For a new dimension of this name, use mtf.broadcast on the result)"
            )
