"""`print_tensor`, which prints whole tensors whenever the program runs."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Shape
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import TensorLayout
from meshtf.ops.side_effects.depend import DependOperation
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner


class PrintOperation(Operation):
    """Prints whole tensors, only on the first core. Its output is ready once it has printed."""

    has_side_effect = True
    why_not_compiled = "prints"

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


@language_function
def print_tensor(x: Tensor, data: Tensor | Sequence[Tensor], message: str, summarize: int | None = None) -> Tensor:
    """Returns x. Each run of the program prints `message` and each whole tensor of `data` once, on stderr.

    Args:
      x: returned as it is. Operations that use the result run after the printing.
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
    """Does the same as `print_tensor`, under the name that this has in Mesh TensorFlow.

    Args:
      x: returned as it is.
      data: tensors to print.
      message: printed first.
      summarize: how many elements to print at either end of each dimension; 3 by default, -1 for all.

    Examples:
      >>> y = mtf.Print(x, [mtf.reduce_mean(x)], "mean of x")
    """
    return print_tensor(x, data, message, summarize)
