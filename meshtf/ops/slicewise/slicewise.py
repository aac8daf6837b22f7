"""`slicewise` and `cwise`: any TensorFlow function of slices as an operation, differentiable to any order."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Shape, ShapeLike, names_of
from meshtf.errors import GraphError, ShapeError, counted
from meshtf.graph.dtypes import dtype_of, is_differentiable
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import Axes, TensorLayout
from meshtf.ops.inputs.constants import zeros_like
from meshtf.ops.slicewise._arguments import check_grad_function, check_operands, check_splittable, outputs_of
from meshtf.ops.slicewise.kernel_function import EmittedFunction, KernelFunction
from meshtf.ops.slicewise.local_function import LocalFunction, as_tensors, check_local_function, name_of
from meshtf.planning.layouts.layout_table import LayoutTable, ResolvedLayout
from meshtf.planning.layouts.padding import uneven_dims, whole_in
from meshtf.planning.local_work.wide_terms import term_dtype
from meshtf.planning.planner import Planner
from meshtf.planning.whole_dimensions import whole_because

GradFunction: TypeAlias = Callable[..., Any]
"""A function `grad_function(operation, *dys)` that returns a gradient, or None, for each operand."""


class SlicewiseOperation(Operation):
    """Runs a TensorFlow function on every core's slices.

    Dimensions that are not splittable are gathered first. Splittable ones are split as in the `anchor`, which is the
    first output of the user's function, even in its gradients. Only in gradients may an output lack a splittable
    dimension. It is then a pending sum over that dimension's mesh axes.
    """

    why_not_compiled = "has a function of yours, which may do what XLA cannot"

    def __init__(
        self,
        tf_fn: LocalFunction,
        inputs: Sequence[Tensor],
        outputs: Sequence[tuple[Shape, tf.DType]],
        splittable_dims: Sequence[str],
        *,
        grad_function: GradFunction | int | None = None,
        name: str = "slicewise",
    ) -> None:
        super().__init__(inputs, outputs, name=name)
        self.tf_fn = tf_fn
        self.is_product = isinstance(tf_fn, KernelFunction)
        self.splittable_names = tuple(splittable_dims)
        self._grad_function = grad_function
        self._anchor = self.outputs[0]
        self._like: tuple[Tensor, ...] = ()
        self._kind = name

    @property
    def has_gradient(self) -> bool:
        return (self._grad_function is None or callable(self._grad_function)) and super().has_gradient

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        if callable(self._grad_function):
            return self._users_gradient(self._grad_function, grad_ys)
        given = {i: dy for i, dy in enumerate(grad_ys) if dy is not None}
        own = self.tf_fn.gradient_function() if isinstance(self.tf_fn, KernelFunction) else None
        if own is not None and list(given) == [0]:
            function, wrt = own
            operands = [*self.inputs, *self.outputs, given[0]]
        else:
            wrt = [i for i, x in enumerate(self.inputs) if is_differentiable(x.dtype)]
            function = local_gradient(self.tf_fn, len(self.inputs), wrt, list(given))
            operands = [*self.inputs, *given.values()]
        operation = SlicewiseOperation(
            function,
            operands,
            [(self.inputs[i].shape, self.inputs[i].dtype) for i in wrt],
            self.splittable_names,
            name=f"{self._kind}_gradient",
        )
        # The gradient's function must get the same slices as the forward function, so both use the splits of one
        # tensor.
        operation._anchor = self._anchor
        operation._like = tuple(self.inputs[i] for i in wrt)
        by_input = dict(zip(wrt, operation.outputs, strict=True))
        return [by_input.get(i) for i in range(len(self.inputs))]

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        if self._like:
            return [layouts.resolved(x) for x in self._like]
        return super().output_layouts(layouts)

    def output_pending_axes(self, layouts: LayoutTable) -> Sequence[Axes]:
        splits = self._splits(layouts)
        return [tuple(a for n, axes in splits.items() if not y.shape.has(n) for a in axes) for y in self.outputs]

    def gathers_because(self, layouts: LayoutTable) -> str:
        names = {d.name for x in self.inputs for d in x.shape if d.name not in self.splittable_names}
        return whole_because(layouts, self.inputs, names, "the function is given these dimensions whole")

    def lower(self, planner: Planner) -> None:
        splits = self._splits(planner.layouts)
        values = [planner.read(x, _layout(x.shape, splits)) for x in self.inputs]
        # An output that lacks a split dimension is a term of a sum: each core computed it from its part.
        pending = self.output_pending_axes(planner.layouts)
        dtypes = [term_dtype(y.dtype) if p else y.dtype for y, p in zip(self.outputs, pending, strict=True)]
        specs = [
            (y.shape, dtype, _layout(y.shape, splits), p)
            for y, dtype, p in zip(self.outputs, dtypes, pending, strict=True)
        ]
        sizes = [layout.slice_shape(shape, planner.mesh_shape) for shape, _, layout, _ in specs]
        flops = sum(map(math.prod, sizes))
        if isinstance(self.tf_fn, KernelFunction):
            flops = self.tf_fn.flops([v.slice_shape for v in values])
        results = planner.compute(self._kind, EmittedFunction(self.tf_fn, sizes, dtypes), values, specs, flops=flops)
        returned = [dataclasses.replace(v, dtype=y.dtype) for v, y in zip(results, self.outputs, strict=True)]
        check_local_function(self, self.tf_fn, values, returned)
        for output, value in zip(self.outputs, results, strict=True):
            planner.write(output, value)

    def _splits(self, layouts: LayoutTable) -> dict[str, Axes]:
        shape, own = self._anchor.shape, layouts[self._anchor]
        # The function must not see padding, because its effect on the result would be unknown.
        layout = whole_in(own, uneven_dims(own, shape, layouts.mesh_shape))
        return {name: layout.axes[shape.axis(name)] for name in self.splittable_names}

    def _users_gradient(self, grad_function: GradFunction, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        dys = [zeros_like(y) if dy is None else dy for y, dy in zip(self.outputs, grad_ys, strict=True)]
        found = grad_function(self, *dys)
        grads = list(found) if isinstance(found, list | tuple) else [found]
        if len(grads) != len(self.inputs):
            raise GraphError(
                f"the grad_function of {self.name} gave {counted(len(grads), 'gradient')} for "
                f"{counted(len(self.inputs), 'operand')}; give "
                f"one for each, None where there is none"
            )
        for x, grad in zip(self.inputs, grads, strict=True):
            if grad is not None and (check_tensor(grad, "gradient").shape, grad.dtype) != (x.shape, x.dtype):
                raise ShapeError(
                    f"the grad_function of {self.name} gave {grad} as gradient of {x}; it must have that operand's "
                    f"shape and dtype"
                )
        return grads


def local_gradient(tf_fn: LocalFunction, operands: int, wrt: Sequence[int], given: Sequence[int]) -> LocalFunction:
    """The function that computes gradients of the operands in `wrt`; zeros if an operand is not connected.

    It takes a slice of each operand, then the gradient of each output in `given`.
    """

    def gradient(*slices: tf.Tensor) -> list[tf.Tensor]:
        zero, dys = tf.UnconnectedGradients.ZERO, list(slices[operands:])
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            # The copies tell operands apart: the same tensor may be given twice, and each operand has a gradient of its
            # own.
            xs = [tf.identity(x) for x in slices[:operands]]
            watched = [xs[i] for i in wrt]
            tape.watch(watched)
            ys = as_tensors(tf_fn(*xs))
        wanted = [ys[i] for i in given]
        if tf.executing_eagerly():
            grads = tape.gradient(wanted, watched, output_gradients=dys, unconnected_gradients=zero)
        else:
            # A tape would record nothing if the user paused all tapes (stop_recording) where the program is traced.
            grads = tf.gradients(wanted, watched, dys, unconnected_gradients=zero)
        return [tf.convert_to_tensor(g) for g in grads]

    return gradient


@language_function
def slicewise(
    tf_fn: LocalFunction,
    xs: Tensor | Sequence[Tensor],
    output_shape: ShapeLike | Sequence[ShapeLike] | None = None,
    output_dtype: tf.DType | Sequence[tf.DType] | None = None,
    splittable_dims: ShapeLike | None = None,
    grad_function: GradFunction | int | None = None,
    name: str | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """A TensorFlow function, run by every core on its slices.

    Args:
      tf_fn: takes a tf.Tensor for each of `xs`, its dimensions in the order of the named shape, and returns one, or a
        list for several outputs. It is traced without autograph, several times (and again inside its gradient), so it
        should do nothing in Python except make TensorFlow operations.
      xs: operands.
      output_shape: named shape of the output, by default that of the first operand. For several outputs, a list of
        shapes (so a list of texts is several shapes).
      output_dtype: the output's dtype, by default the first operand's; a list for several outputs.
      splittable_dims: dimensions along which each part of every output depends only on the same part of the operands.
        They may be split between cores; all others are gathered first. The default is none.
      grad_function: `grad_function(operation, *dys)` returns a gradient for each operand, in the language. 0: no
        gradient. None: TensorFlow's own, to any order, with zeros where it finds no connection.
      name: the operation's name.

    Returns:
      A tensor; a tuple of them if you gave a list of shapes or dtypes.

    Raises:
      ShapeError: a splittable dimension is not in every output, or in no operand, or differs in size.

    Examples:
      >>> mtf.slicewise(lambda rows: tf.norm(rows, axis=1), x, "batch", splittable_dims="batch")
      slicewise [batch:4] float32
    """
    operands = check_operands(tf_fn, xs)
    outputs, is_several = outputs_of(operands, output_shape, output_dtype)
    dims = names_of(() if splittable_dims is None else splittable_dims)
    check_splittable(dims, [x.shape for x in operands], [shape for shape, _ in outputs])
    check_grad_function(grad_function)
    operation = SlicewiseOperation(
        tf_fn, operands, outputs, dims, grad_function=grad_function, name=name or name_of(tf_fn, "slicewise")
    )
    return operation.outputs if is_several else operation.outputs[0]


@language_function
def cwise(
    tf_fn: LocalFunction,
    xs: Tensor | Sequence[Tensor],
    output_dtype: tf.DType | None = None,
    grad_function: GradFunction | int | None = None,
    name: str | None = None,
) -> Tensor:
    """An elementwise TensorFlow function. The output has the first operand's shape. Nothing is broadcast by name.

    Args:
      tf_fn: takes a tf.Tensor for each of `xs` and returns one, element by element; see `slicewise`.
      xs: operands.
      output_dtype: by default that of the first operand.
      grad_function: as for `slicewise`.
      name: the operation's name.

    Raises:
      ShapeError: operands have one dimension in two sizes.
      GraphError: `tf_fn` is no function, or there is no operand.

    Examples:
      >>> mtf.cwise(tf.math.lgamma, x)
      lgamma [batch:4 hidden:8] float32
    """
    operands = check_operands(tf_fn, xs)
    check_grad_function(grad_function)
    shape = operands[0].shape
    outputs = [(shape, operands[0].dtype if output_dtype is None else dtype_of(output_dtype))]
    return SlicewiseOperation(
        tf_fn,
        operands,
        outputs,
        shape.dimension_names,
        grad_function=grad_function,
        name=name or name_of(tf_fn, "cwise"),
    ).outputs[0]


def _layout(shape: Shape, splits: dict[str, Axes]) -> TensorLayout:
    return TensorLayout(tuple(splits.get(d.name, ()) for d in shape))
