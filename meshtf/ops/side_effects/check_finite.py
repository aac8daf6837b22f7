"""`check_finite`, which stops a step at a NaN or an infinity."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.errors import DtypeError, NonFiniteError
from meshtf.graph.dtypes import is_differentiable
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.side_effects.first_place import Places, first_place
from meshtf.planning.layouts.layout_table import LayoutTable, ResolvedLayout
from meshtf.planning.open_check import OpenCheck, failed_if, failure_spec
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner


class CheckFiniteOperation(Operation):
    """x. If an element is NaN or infinite, the step assigns nothing and raises NonFiniteError."""

    has_side_effect = True
    takes_padding = True
    mapped = "by name"

    def __init__(self, x: Tensor, message: str | None, name: str) -> None:
        super().__init__([x], [(x.shape, x.dtype)], name=name)
        self._message = message

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return list(grad_ys)

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        return [layouts.resolved(self.inputs[0])]

    def lower(self, planner: Planner) -> None:
        (x,) = self.inputs
        value = planner.read(x)
        places = Places.of(x.shape, value.layout, planner)
        axes = tuple(d.name for d in planner.mesh_shape if d.name in value.layout.used)
        flops = math.prod(value.slice_shape)
        (failures,) = planner.compute("check_finite", _failures, [value], [failure_spec(axes)], flops=flops)
        finding = first_place(planner, places, [value], lambda s: tf.logical_not(_is_finite(s)))
        fact = f"a NaN or an infinity in {x!r}"
        message = f"{self._message}: {fact}" if self._message else fact
        planner.checks.add(OpenCheck(self, message, failures, NonFiniteError, bool(x.shape.dims), finding))
        planner.write(self.outputs[0], value)


def _failures(core: Core, x: tf.Tensor) -> tf.Tensor:
    return failed_if(tf.logical_not(tf.reduce_all(_is_finite(x))))


def _is_finite(x: tf.Tensor) -> tf.Tensor:
    if x.dtype.is_complex:
        return tf.math.is_finite(tf.math.real(x)) & tf.math.is_finite(tf.math.imag(x))
    return tf.math.is_finite(x)


@language_function
def check_finite(x: Tensor, message: str | None = None, name: str | None = None) -> Tensor:
    """Returns x. A step in which x has a NaN or an infinity assigns nothing, and raises NonFiniteError.

    The check is made whether or not the result is used, and wherever in the program the assignments are. The error says
    where in x the first such element is. A check costs one pass over the slice. Cores exchange one number, together
    with other sums if there are any. Inside your own tf.function, the error is TensorFlow's InvalidArgumentError, with
    the same text but no place.

    Raises:
      DtypeError: x is neither floating nor complex.

    Examples:
      >>> mtf.check_finite(mtf.log(x), "the logarithm of x")
      check_finite [batch:4 hidden:8] float32
    """
    if not is_differentiable(check_tensor(x).dtype):
        raise DtypeError(f"{x.dtype.name} is always finite; check a floating tensor")
    return CheckFiniteOperation(x, message, name or "check_finite").outputs[0]
