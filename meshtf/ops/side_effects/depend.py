"""`depend`: an order among operations that do not use each other's values."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.errors import GraphError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.planning.layouts.layout_table import LayoutTable, ResolvedLayout
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner


class DependOperation(Operation):
    """x, computed after other operations. A sum pending in x stays pending."""

    passes_pending_sums = True
    takes_any_layout = True
    takes_padding = True
    mapped = "by name"

    def __init__(self, x: Tensor, dependencies: Sequence[Operation], name: str = "depend") -> None:
        super().__init__([x], [(x.shape, x.dtype)], name=name)
        self.dependencies = tuple(dependencies)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return list(grad_ys)

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        return [layouts.resolved(self.inputs[0])]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        (x,) = planner.read_operands_as_they_are(self, fill=None)
        # A gradient that computes this operation again does not print again, so it has no printing to wait for.
        held = [planner.tensors.found(y) for operation in self.dependencies for y in operation.outputs]
        others = [value for value in held if value is not None]

        def emit(core: Core, x: tf.Tensor, *others: tf.Tensor) -> tf.Tensor:
            with tf.control_dependencies(list(others)):
                return tf.identity(x)

        spec, facts = (output.shape, output.dtype, x.layout), WorkFacts(is_view=True)
        planner.write(output, planner.compute("depend", emit, [x, *others], [spec], pending=x.pending, facts=facts)[0])


@language_function
def depend(x: Tensor, dependencies: Sequence[Tensor | Operation]) -> Tensor:
    """x, computed only after the dependencies have been computed (or printed).

    Assignments need no order: they all happen when the program ends.

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
