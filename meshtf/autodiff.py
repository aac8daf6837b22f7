"""Reverse-mode differentiation of the graph.

Gradients are operations like any other, so they can be differentiated again.

The operations are visited in reverse program order. Each receives the gradients of its outputs, and returns the
gradients of its inputs. For y = a * b + a, where the gradient of y is 1:

    operation       returns
    add(p, a)       dp = 1, da = 1
    p = a * b       da += b, db = a
"""

from __future__ import annotations

from collections.abc import Sequence

from meshtf.call_sites import language_function
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.dtypes import is_differentiable, sum_dtype
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensors
from meshtf.ops.algebra.arithmetic import add_n
from meshtf.ops.algebra.reduction import sum_to
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.inputs.constants import ones_like
from meshtf.ops.rearranging.with_layout import with_layout_of

_MOST_TERMS = 8
"""The most terms of a narrow gradient that wait before they are summed in float32. Each takes memory until then."""


@language_function
def gradients(
    ys: Tensor | Sequence[Tensor],
    xs: Tensor | Sequence[Tensor],
    grad_ys: Sequence[Tensor | None] | None = None,
) -> list[Tensor | None]:
    """Gradients of the sum of `ys` with respect to each of `xs`.

    Args:
      ys: tensors to differentiate.
      xs: tensors to differentiate by.
      grad_ys: gradients of the `ys`, each of its tensor's shape and dtype; ones by default.

    Returns:
      One gradient for each x, with the shape, dtype and layout of x. It is None if no path leads from x to `ys`.
      In a function of a loop, a branch or a recomputed part, only paths inside that function count.

    Examples:
      >>> n = mtf.constant(mesh, [1.0, 2.0], "n:2")
      >>> value(mtf.gradients([mtf.square(n)], [n])[0])
      array([2., 4.], dtype=float32)
      >>> mtf.gradients([mtf.reduce_sum(x)], [x, n])
      [gradients/broadcast [batch:4 hidden:8] float32, None]
    """
    ys, xs = _as_list(ys), _as_list(xs)
    initial = [None] * len(ys) if grad_ys is None else list(grad_ys)
    return differentiate(ys, xs, initial, ys[0].graph.differentiable_operations if ys else [])


def differentiate(
    ys: Sequence[Tensor], xs: Sequence[Tensor], grad_ys: Sequence[Tensor | None], operations: Sequence[Operation]
) -> list[Tensor | None]:
    """Computes gradients as `gradients` does, but only through `operations`, which are in program order."""
    grads = _initial(ys, grad_ys)
    between = _between(ys, set(xs), operations)
    for operation in reversed(between):
        own = [_total(grads, y) for y in operation.outputs]
        if all(g is None for g in own):
            continue
        before = len(operation.graph.operations)
        with operation.graph.gradient_of(operation):
            contributions = [
                None if grad is None else sum_to(grad, x.shape)
                for x, grad in zip(operation.inputs, operation.gradient(own), strict=True)
            ]
        # An operation may return a gradient that existed before. It has its layout already.
        made = set(operation.graph.operations[before:])
        for x, grad in zip(operation.inputs, contributions, strict=True):
            if grad is not None and is_differentiable(x.dtype):
                if grad.operation in made:
                    _lay_out_like(grad, x)
                _accumulate(grads, x, grad)
    return [_total(grads, x) for x in xs]


def _initial(ys: Sequence[Tensor], grad_ys: Sequence[Tensor | None]) -> dict[Tensor, list[Tensor]]:
    if len(ys) != len(grad_ys):
        raise ShapeError(f"{len(ys)} ys but {len(grad_ys)} grad_ys")
    grads: dict[Tensor, list[Tensor]] = {}
    for y, grad in zip(ys, grad_ys, strict=True):
        if not is_differentiable(y.dtype):
            raise DtypeError(f"{y} is not floating: it has no gradient")
        if grad is not None and (grad.shape != y.shape or grad.dtype != y.dtype):
            raise ShapeError(f"the gradient of {y} must have its shape and dtype, and is {grad}")
        if grad is None:
            with y.graph.differentiating(y.operation):
                grad = ones_like(y)
            _lay_out_like(grad, y)
        _accumulate(grads, y, grad)
    return grads


def _lay_out_like(grad: Tensor, x: Tensor) -> None:
    """Gives a gradient the layout of its primal.

    Otherwise the layout rules would decide, perhaps against an override of the primal's layout. If a block returns the
    gradient, the block decides its layout, and the program moves it to the primal's layout later.
    """
    operation = grad.operation
    is_overridden = x.is_overridden or grad.is_overridden
    if is_overridden and len(operation.outputs) == 1 and not operation.blocks and operation.like is None:
        operation.lay_out_like(x)


def _accumulate(grads: dict[Tensor, list[Tensor]], x: Tensor, grad: Tensor) -> None:
    """Adds the term of one use of x to its gradient.

    Terms in a narrow dtype are collected first and summed together, so that fewer sums are rounded.
    """
    if (x.is_overridden or grad.is_overridden) and grad.operation.like is not x:
        with x.graph.differentiating(x.operation):
            grad = with_layout_of(grad, x)
    terms, wide = grads.setdefault(x, []), sum_dtype(x.dtype)
    if terms and (terms[0].dtype == wide or len(terms) == _MOST_TERMS):
        with x.graph.differentiating(x.operation):
            grads[x] = check_tensors([add_n([cast(term, wide) for term in (*terms, grad)])])
    else:
        terms.append(grad)


def _total(grads: dict[Tensor, list[Tensor]], x: Tensor) -> Tensor | None:
    """The gradient of x, or None. All operations that contribute to it have been visited."""
    if x not in grads:
        return None
    if len(grads[x]) > 1 or grads[x][0].dtype != x.dtype:
        with x.graph.differentiating(x.operation):
            grads[x] = [cast(check_tensors([add_n(grads[x])])[0], x.dtype)]
    return grads[x][0]


def _between(ys: Sequence[Tensor], xs: set[Tensor], operations: Sequence[Operation]) -> list[Operation]:
    """Differentiable operations on some path from `xs` to `ys`, in program order."""
    wanted = {y.operation for y in ys}
    for operation in reversed(operations):
        if operation in wanted:
            wanted.update(x.operation for x in operation.inputs)
    reached: set[Tensor] = set(xs)
    found = []
    for operation in operations:
        if operation in wanted and operation.has_gradient and any(x in reached for x in operation.inputs):
            found.append(operation)
            reached.update(operation.outputs)
    return found


def _as_list(x: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return check_tensors(x)
