"""Operations for what they do besides computing: printing, ordering, checking, naming a tensor to be fetched."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Shape
from meshtf.errors import DtypeError, GraphError
from meshtf.graph import Operation, Tensor, check_tensor, is_differentiable
from meshtf.layout import TensorLayout
from meshtf.planning.layout_table import LayoutTable, ResolvedLayout
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner


class DependOperation(Operation):
    """x, computed after other operations. A sum pending in x stays pending."""

    passes_pending_sums = True
    takes_any_layout = True

    def __init__(self, x: Tensor, dependencies: Sequence[Operation], name: str = "depend") -> None:
        super().__init__([x], [(x.shape, x.dtype)], name=name)
        self.dependencies = tuple(dependencies)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return list(grad_ys)

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        return [layouts.resolved(self.inputs[0])]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        (x,) = planner.read_operands_as_they_are(self)
        # A gradient that computes this again does not print again, and finds no printing to wait for.
        held = [planner.found(y) for operation in self.dependencies for y in operation.outputs]
        others = [value for value in held if value is not None]

        def emit(core: Core, x: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies(list(others)):
                return tf.identity(x)

        spec = (output.shape, output.dtype, x.layout)
        planner.write(output, planner.compute("depend", emit, [x, *others], [spec], pending=x.pending)[0])


class PrintOperation(Operation):
    """Prints whole tensors, on the first core alone. Its output says that it has been done."""

    has_side_effect = True

    def __init__(self, data: Sequence[Tensor], message: str, summarize: int | None) -> None:
        super().__init__(data, [(Shape([]), tf.bool)], name="print_tensor")
        self._message = message
        self._summarize = summarize

    def lower(self, planner: Planner) -> None:
        values = [planner.read(x, TensorLayout(((),) * x.shape.ndims)) for x in self.inputs]
        axes = tuple(planner.mesh_shape.dimension_names)
        labels, summarize = [f"\n{x!r}" for x in self.inputs], self._summarize
        labels[0] = self._message + labels[0]

        def emit(core: Core, *slices: tf.Tensor) -> tf.Tensor:
            def show() -> tf.Tensor:
                said = [part for label, x in zip(labels, slices, strict=True) for part in (f"{label} =", x)]
                printed = tf.print(*said, summarize=summarize)
                with tf.control_dependencies([] if printed is None else [printed]):
                    return tf.constant(True)

            return tf.cond(tf.equal(core.coordinate(axes), 0), show, lambda: tf.constant(True))

        (output,) = self.outputs
        planner.write(output, planner.compute("print", emit, values, [(output.shape, tf.bool, TensorLayout(()))])[0])


class CheckFiniteOperation(Operation):
    """x; when some element is a NaN or an infinity, the step assigns nothing and raises NonFiniteError."""

    has_side_effect = True

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
        spec = (Shape([]), tf.bool, TensorLayout(()))
        (flag,) = planner.compute("check_finite", _is_finite, [value], [spec], flops=math.prod(value.slice_shape))
        split = tuple(d.name for d in planner.mesh_shape if d.name in value.layout.used)
        fact = f"a NaN or an infinity in {x!r}"
        planner.check(f"{self._message}: {fact}" if self._message else fact, planner.all_reduce(flag, split, "min"))
        planner.write(self.outputs[0], value)


def _is_finite(core: Core, x: tf.Tensor) -> tf.Tensor:
    if x.dtype.is_complex:
        return tf.reduce_all(tf.math.is_finite(tf.math.real(x)) & tf.math.is_finite(tf.math.imag(x)))
    return tf.reduce_all(tf.math.is_finite(x))


@language_function
def depend(x: Tensor, dependencies: Sequence[Tensor | Operation]) -> Tensor:
    """x, which is not there before the dependencies have been computed (or printed).

    Assignments are no use here: they all take place when the program ends.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> mtf.depend(x, [mtf.assign(w, 0.5 * w)])
      depend [batch:4 hidden:8] float32
    """
    check_tensor(x)
    items = [dependencies] if isinstance(dependencies, Tensor | Operation) else list(dependencies)
    operations = [y if isinstance(y, Operation) else check_tensor(y, "dependency").operation for y in items]
    for operation in operations:
        if operation.graph is not x.graph:
            raise GraphError(f"{x} and the dependency {operation} belong to different graphs")
    return DependOperation(x, list(dict.fromkeys(operations))).outputs[0]


@language_function
def print_tensor(x: Tensor, data: Tensor | Sequence[Tensor], message: str, summarize: int | None = None) -> Tensor:
    """x; each time the program runs, `message` and the whole of each tensor of `data` are printed once, on stderr.

    Args:
      x: returned as it is; what uses the result comes after the printing.
      data: tensors to print. They are gathered to every core, which the report shows.
      message: printed first.
      summarize: how many elements to print at either end of each dimension; 3 by default, -1 for all.

    Examples:
      >>> y = mtf.print_tensor(x, [mtf.reduce_mean(x)], "mean of x")
      >>> y.shape
      Shape[batch:4 hidden:8]
    """
    tensors = [data] if isinstance(data, Tensor) else list(data)
    printed = PrintOperation(
        [check_tensor(y, "printed value") for y in tensors] or [check_tensor(x)], message, summarize
    )
    return DependOperation(check_tensor(x), [printed]).outputs[0]


@language_function
def Print(x: Tensor, data: Tensor | Sequence[Tensor], message: str, summarize: int | None = None) -> Tensor:  # noqa: N802
    """Prints as `print_tensor` does, whose name in Mesh TensorFlow this is.

    Args:
      x: returned as it is.
      data: tensors to print.
      message: printed first.
      summarize: how many elements to print at either end of each dimension; 3 by default, -1 for all.

    Examples:
      >>> y = mtf.Print(x, [mtf.reduce_mean(x)], "mean of x")
    """
    return print_tensor(x, data, message, summarize)


@language_function
def check_finite(x: Tensor, message: str | None = None, name: str | None = None) -> Tensor:
    """x; a step in which it has a NaN or an infinity assigns nothing, and raises NonFiniteError.

    Checked whether or not the result is used, wherever in the program the assignments stand. Costs one pass over the
    slice, and one small allreduce where x is split. Inside a tf.function of yours the error is TensorFlow's
    InvalidArgumentError, with the same text.

    Raises:
      DtypeError: x is neither floating nor complex.

    Examples:
      >>> mtf.check_finite(mtf.log(x), "the logarithm of x")
      check_finite [batch:4 hidden:8] float32
    """
    if not is_differentiable(check_tensor(x).dtype):
        raise DtypeError(f"{x.dtype.name} is always finite; check a floating tensor")
    return CheckFiniteOperation(x, message, name or "check_finite").outputs[0]


@language_function
def export(x: Tensor, name: str) -> Tensor:
    """x, which can from now on be fetched by this name under the open scopes, without being handed up and returned.

    `lowering.run("decoder/weights", feeds)` and `lowering.export_to_tf_tensor("decoder/weights", feeds)` give its
    value, whole; of an `mtf.function`, the lowering is `step.lowering`. Until then it costs nothing.

    Raises:
      GraphError: another tensor has the name.

    Examples:
      >>> with mtf.variable_scope("encoder"):
      ...     y = mtf.export(2.0 * x, "hidden")
      >>> mesh.graph.exports
      {'encoder/hidden': encoder/multiply [batch:4 hidden:8] float32}
    """
    exports = check_tensor(x).graph.exports
    full_name = x.graph.scoped(name)
    first = exports.setdefault(full_name, x)
    if first is not x:
        raise GraphError(f'"{full_name}" names {first} already, made at {first.operation.site}; give another name')
    return x
