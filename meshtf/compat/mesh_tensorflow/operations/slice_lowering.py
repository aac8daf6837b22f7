"""The lowering as the `lower` of an operation class sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from meshtf.compat.mesh_tensorflow.operations.laid_out_tensor import LaidOutTensor
from meshtf.compat.mesh_tensorflow.operations.slices_mesh_impl import SlicesMeshImpl
from meshtf.compat.mesh_tensorflow.runs.eager_mode import eager_mode
from meshtf.errors import DtypeError, GraphError, LayoutError, MeshtfError, ShapeError
from meshtf.graph.graph import Graph
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.planning.planner import Planner


class SliceLowering:
    """The lowering that an operation class's `lower` receives. It holds the slices of operands and of results.

    Attributes:
      tensors: the slices of the operands. The slices of a result may be set there.
    """

    def __init__(self, planner: Planner, operation: Operation) -> None:
        self._planner = planner
        self._operation = operation
        self.slices_mesh_impl = SlicesMeshImpl(planner, operation)
        self.tensors = _Tensors(planner, operation)

    @property
    def graph(self) -> Graph:
        return self._operation.graph

    def mesh_impl(self, x: Any) -> SlicesMeshImpl:
        """The mesh, which works on slices."""
        return self.slices_mesh_impl

    def of_operation(self, operation: Operation) -> SliceLowering:
        """A `SliceLowering` for another operation in the same plan."""
        return SliceLowering(self._planner, operation)

    def set_tensor_lowering(self, x: Tensor, laid_out_tensor: LaidOutTensor) -> None:
        """Sets the slices of a result.

        Raises:
          GraphError: `x` is no output of the operation, or no slices are given.
          ShapeError, DtypeError: the slices have another size or dtype than those of the output.
          LayoutError: cores differ along a mesh axis that does not split the output.
        """
        self.tensors[x] = laid_out_tensor

    def add_counter(self, key: str, value: object) -> None:
        """Ignores the counter. The report counts the work of a program."""

    def lowered(self, lower: Callable[[Any, Any], object]) -> dict[Tensor, LaidOutTensor]:
        """The slices of each output.

        Raises:
          GraphError: `lower` set no slices for one of them.
        """
        with eager_mode():
            lower(self._operation, self)
        missing = [y for y in self._operation.outputs if y not in self.tensors.written]
        if missing:
            raise GraphError(
                f"lower of {type(self._operation).__name__} gave {missing[0]} no value; call "
                f"lowering.set_tensor_lowering(self.outputs[{missing[0].index}], slices)\n  at {self._operation.site}"
            )
        return self.tensors.written

    def write(self, outputs: dict[Tensor, LaidOutTensor]) -> None:
        """Gives the plan the values of the outputs."""
        for y, slices in outputs.items():
            layout = self._planner.layouts[y]
            self._planner.write(y, self.slices_mesh_impl.written(slices, y.shape, layout))

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"the lowering of an operation class has no attribute {name!r} in meshtf; it has tensors, mesh_impl, "
            f"set_tensor_lowering and graph. What has no tensor for a result (an assignment, a print) is mtf.assign or "
            f"mtf.Print"
        )


class _Tensors:
    """The slices by tensor. Slices of operands are computed on access, and slices of results are set."""

    def __init__(self, planner: Planner, operation: Operation) -> None:
        self._planner, self._operation = planner, operation
        self._read: dict[Tensor, LaidOutTensor] = {}
        self.written: dict[Tensor, LaidOutTensor] = {}

    def __getitem__(self, x: Tensor) -> LaidOutTensor:
        return self.written[x] if x in self.written else self.laid_out_as(x, x)

    def laid_out_as(self, x: Tensor, like: Tensor) -> LaidOutTensor:
        """The slices of an operand in the layout of another tensor of its shape."""
        if x not in self._operation.inputs:
            raise self._error(GraphError, f"lowering.tensors has no slices of {x}, which is no input of the operation")
        if x not in self._read:
            self._read[x] = LaidOutTensor(self._planner.read(x, self._planner.layouts[like]))
        return self._read[x]

    def __contains__(self, x: object) -> bool:
        return x in self.written or x in self._operation.inputs

    def __setitem__(self, y: Tensor, slices: LaidOutTensor) -> None:
        if y not in self._operation.outputs:
            raise self._error(GraphError, f"{y} is no output of the operation, and was given slices")
        if not isinstance(slices, LaidOutTensor):
            raise self._error(
                GraphError,
                f"{y} was given {type(slices).__name__} for its slices; give the result of "
                f"mesh_impl.slicewise or of a collective of mesh_impl",
            )
        layout, mesh_shape = self._planner.layouts[y], self._planner.mesh_shape
        expected = list(layout.slice_shape(y.shape, mesh_shape))
        if slices.slice_shape != expected:
            raise self._error(
                ShapeError,
                f"slices of output [{layout.to_string(y.shape)}] have the sizes {expected}, and it was given {slices}",
            )
        if slices.dtype != y.dtype:
            raise self._error(
                DtypeError, f"output {y} was given slices of {slices.dtype.name}; declare that dtype, or use tf.cast"
            )
        extra = [d.name for d in mesh_shape if d.name in slices.axes - layout.used]
        if extra:
            numbers = [mesh_shape.axis(a) for a in extra]
            raise self._error(
                LayoutError,
                f"output [{layout.to_string(y.shape)}] is the same on all cores along {'+'.join(extra)}, and was given "
                f"slices that may differ there: {slices}. If they are terms of a sum, call "
                f'mesh_impl.allreduce(slices, {numbers}, "SUM") first; if they are parts, mesh_impl.allconcat',
            )
        self.written[y] = slices

    def _error(self, kind: type[MeshtfError], fact: str) -> MeshtfError:
        return kind(f"{self._operation.name}: {fact}\n  at {self._operation.site}")
