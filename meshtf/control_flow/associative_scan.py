"""`associative_scan`: running results of an associative function, in log2(n) steps in place of n."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import DimensionLike
from meshtf.errors import DtypeError, GraphError, ShapeError
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.elementwise.comparisons import greater_equal
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.constants import range as places_along
from meshtf.ops.windows.shift import shift

T = TypeVar("T")


@language_function
def associative_scan(fn: Callable[[T, T], T], elements: T, dim: DimensionLike, *, reverse: bool = False) -> T:
    """Running results along a dimension: y[i] = fn(... fn(fn(x[0], x[1]), x[2]) ..., x[i]), for an associative `fn`.

    Each step combines every result with the one at twice the distance of the step before (Hillis and Steele 1986). So
    `fn` is called log2(n) times for all n elements at once, where `scan` takes n steps, one after another. This suits
    accelerators, and linear recurrences h[i] = a[i] h[i - 1] + b[i], such as those of state-space models. If the
    dimension is split, each step sends elements to other cores.

    Args:
      fn: combines elements x[i] with later ones x[j], one by one along `dim`. Each argument has the structure and the
        shapes of `elements`, and so has the result. fn(fn(a, b), c) must be fn(a, fn(b, c)).
      elements: a tensor with `dim`, or a structure of such tensors.
      dim: the dimension to go along.
      reverse: whether to begin at the last element: y[i] = fn(... fn(x[n - 1], x[n - 2]) ..., x[i]).

    Returns:
      The running results, in the structure and with the shapes of `elements`.

    Raises:
      ShapeError: a tensor lacks `dim`, or `fn` returns another shape.
      DtypeError: `fn` returns another dtype.
      GraphError: `fn` is no function or returns another structure, or there is no tensor.

    Examples:
      >>> def next_state(before, own):
      ...     (a, b), (own_a, own_b) = before, own
      ...     return a * own_a, own_a * b + own_b
      >>> a, b = mtf.constant(mesh, [0.5, 0.5, 2.0], "time:3"), mtf.ones(mesh, "time:3")
      >>> value(mtf.associative_scan(next_state, (a, b), "time")[1])
      array([1. , 1.5, 4. ], dtype=float32)
    """
    if not callable(fn):
        raise GraphError(f"fn must be a function of two elements, and is {fn!r}")
    results = [check_tensor(x) for x in tf.nest.flatten(elements)]
    if not results:
        raise GraphError("associative_scan needs at least one tensor, and was given none")
    own = reduced_dimension(results[0], dim)
    for x in results:
        x.shape.axis(own)
    places = places_along(results[0].mesh, own)
    places = own.size - 1 - places if reverse else places
    distance = 1
    while distance < own.size:
        offset = -distance if reverse else distance
        before = tf.nest.pack_sequence_as(elements, [shift(x, offset, own, wrap=True) for x in results])
        combined = _checked(fn(before, tf.nest.pack_sequence_as(elements, results)), elements, results)
        # Nothing is that far before the first places. `fn` was given other elements there: it may divide, so not zeros.
        is_far = greater_equal(places, distance)
        results = [where(is_far, y, x) for y, x in zip(combined, results, strict=True)]
        distance *= 2
    return tf.nest.pack_sequence_as(elements, results)


def _checked(returned: Any, elements: Any, like: Sequence[Tensor]) -> list[Tensor]:
    try:
        tf.nest.assert_same_structure(elements, returned)
    except (TypeError, ValueError):
        raise GraphError(f"fn must return the structure of its arguments, and returned {returned!r}") from None
    results = []
    for y, x in zip(tf.nest.flatten(returned), like, strict=True):
        if {*check_tensor(y, "result").shape} != {*x.shape}:
            raise ShapeError(f"fn was given [{x.shape}] and returned [{y.shape}]")
        if y.dtype != x.dtype:
            raise DtypeError(f"fn was given {x.dtype.name} and returned {y.dtype.name}; convert it with mtf.cast")
        results.append(transpose(y, x.shape))
    return results
