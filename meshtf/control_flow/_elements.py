"""The operations of a function of one element, made again for all elements of a dimension: see `mtf.vmap`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, Protocol, runtime_checkable

from meshtf.control_flow._blocks import block_input
from meshtf.dimension import Dimension, Shape
from meshtf.errors import GraphError
from meshtf.graph.blocks import with_nested
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation
from meshtf.ops.algebra.transpose_and_broadcast import broadcast, transpose

_UNKNOWN = """\
operation {operation.name} ({kind}) of the function of mtf.vmap, made at {operation.site}, cannot be mapped over
"{dim}"{why}; do it outside, or write it for all elements at once, with the dimension in its shapes"""

_HAS_IT = """\
{tensor}, made at {tensor.operation.site}, has dimension "{dim}", over which mtf.vmap maps: the function is given
tensors without it. Give a tensor from outside as an argument, or rename the dimension of the function's own"""


@runtime_checkable
class MappedByBlocks(Protocol):
    """An operation with blocks, which are made again for all elements."""

    def for_all(self, elements: Elements) -> Operation:
        """Makes the operation again. Each output has the dimension, or is the same for all elements."""
        ...


class Elements:
    """Makes the operations of the function of one element again, for all elements.

    `given` maps tensors of one element to tensors of all elements, at least one. Tensors that it lacks are the same
    for all.
    """

    def __init__(self, dim: Dimension, given: Mapping[Tensor, Tensor]) -> None:
        self._dim = dim
        self._all = dict(given)
        self._graph = next(iter(given)).graph
        self._same: dict[Tensor, Tensor] = {}
        """Outputs of operations that were made again, and that are the same for all elements."""

    # Tensors

    def __contains__(self, x: Tensor) -> bool:
        """Whether there is a tensor of all elements in place of a tensor of one, even if it is the same for all."""
        return x in self._all

    def of_all(self, x: Tensor) -> Tensor:
        """A tensor of all elements, from a tensor of one.

        Raises:
          GraphError: it has the dimension already.
        """
        self._check(x)
        return self._all[x] if x in self._all else broadcast(x, self.shape(x.shape))

    def get(self, x: Tensor) -> Tensor:
        """A tensor of all elements, or x if it is the same for all."""
        return self._all.get(x, x)

    def same(self, x: Tensor) -> Tensor | None:
        """A tensor that is the same for all elements, without their dimension; None if x differs between elements."""
        return self._same.get(x, None if x in self._all else x)

    def given(self, x: Tensor) -> Tensor:
        """The tensor that a block is given for x: a tensor of all elements only if x differs between them."""
        return self.of_all(x) if (same := self.same(x)) is None else same

    def shape(self, element: Shape) -> Shape:
        return Shape([self._dim, *element])

    # Operations

    def reached(self, operations: Iterable[Operation], given: Iterable[Tensor]) -> set[Tensor]:
        """The tensors of a block that differ between elements if `given` do. Nothing is made."""
        found = {*given}
        for operation in operations:
            if _is_random(operation) or any(x in found or x in self._all for x in _all_inputs(operation)):
                found.update(operation.outputs)
        return found

    def make_again(self, operation: Operation) -> None:
        """Makes an operation for all elements, or keeps the operation if it is the same for all.

        Raises:
          GraphError: the operation cannot be mapped.
        """
        for tensor in (*operation.inputs, *operation.outputs):
            self._check(tensor)
        is_mapped = _is_random(operation) or any(x in self._all for x in _all_inputs(operation))
        if not is_mapped and not operation.has_side_effect:
            operation.graph.adopt(operation)
        elif isinstance(operation, MappedByBlocks):
            self._replace(operation, operation.for_all(self))
        elif self._can_make_again(operation):
            self._replace(operation, self._again(operation))
        else:
            self.refuse(operation)

    def refuse(self, operation: Operation, why: str = "") -> NoReturn:
        kind = type(operation).__name__
        raise GraphError(_UNKNOWN.format(operation=operation, kind=kind, dim=self._dim.name, why=why and f": {why}"))

    def beside(self, given: Mapping[Tensor, Tensor]) -> Elements:
        """Adds tensors, mapped from one element to all, to a copy of these."""
        more = Elements(self._dim, {**self._all, **given})
        more._same.update(self._same)
        return more

    def inside(
        self, operations: Sequence[Operation], bound: Mapping[Tensor, Tensor], mapped: Iterable[Tensor]
    ) -> tuple[Elements, tuple[Operation, ...]]:
        """Makes the operations of a block again.

        Args:
          operations: the operations of the block.
          bound: the new input for each input of the block; the same one if it does not differ between elements.
          mapped: tensors of the block that have the dimension afterwards in any case.

        Returns:
          The tensors inside the block, and its new operations.
        """
        inside = self.beside({x: y for x, y in bound.items() if x is not y})
        with self._graph.capture("a block of the function of mtf.vmap", bound.values()) as made:
            for operation in operations:
                inside.make_again(operation)
            for x in mapped:
                inside._all[x] = inside.of_all(x)
        return inside, tuple(made)

    def _check(self, x: Tensor) -> None:
        if x.shape.has(self._dim.name):
            raise GraphError(_HAS_IT.format(tensor=x, dim=self._dim.name))

    def _can_make_again(self, operation: Operation) -> bool:
        only = {"first input": 0, "second input": 1}.get(operation.mapped)
        if only is not None and any(x in self._all for i, x in enumerate(operation.inputs) if i != only):
            return False
        return operation.mapped != "" and not self._is_used_by_gradient(operation)

    def _is_used_by_gradient(self, operation: Operation) -> bool:
        """Whether the gradient uses a tensor of one element that is not an input, and so would not be replaced."""
        functions = [f for f in operation.made_with[1].values() if inspect.isfunction(f)]
        used = [cell.cell_contents for f in functions for cell in f.__closure__ or ()]
        return any(isinstance(x, Tensor) and x in self._all for x in used)

    def _again(self, operation: Operation) -> Operation:
        own = {x: self.of_all(x) for x in operation.inputs} if operation.mapped == "all inputs" else self._all

        def argument(value: Any) -> Any:
            if isinstance(value, Tensor):
                return own.get(value, value)
            if isinstance(value, Shape):
                return self.shape(value)
            if isinstance(value, Operation):  # the result waits for it
                return self.given(value.outputs[0]).operation if value.outputs else value
            return type(value)(map(argument, value)) if type(value) in (list, tuple) else value

        args, kwargs = operation.made_with
        again = {name: argument(value) for name, value in kwargs.items()}
        if isinstance(operation, ElementwiseOperation):  # its default order of dimensions may differ
            again["output_shape"] = self.shape(operation.outputs[0].shape)
        return type(operation)(*map(argument, args), **again)

    def _replace(self, operation: Operation, again: Operation) -> None:
        """Replaces an operation of one element by the operation of all elements, with the same name and line."""
        again.name, again.site, again.scoped_name = operation.name, operation.site, operation.scoped_name
        for before, after in zip(operation.outputs, again.outputs, strict=True):
            wanted = self.shape(before.shape)
            assert after.dtype == before.dtype, f"{after} is not {before}"
            if {*after.shape} == {*before.shape}:  # the same for all
                self._same[before] = after
                self._all[before] = broadcast(after, wanted)
            else:
                self._all[before] = transpose(after, wanted) if after.shape != wanted else after


def inputs_for_all(given: Sequence[tuple[Tensor, Tensor]], elements: Elements) -> dict[Tensor, Tensor]:
    """The new input of a block for each one before, from pairs of outer tensors and inputs."""
    return {
        x: x if elements.same(outer) is not None else block_input(elements.of_all(outer), x.name) for outer, x in given
    }


def _is_random(operation: Operation) -> bool:
    """Whether an operation, or one inside its blocks, draws other numbers for each element."""
    return any(o.mapped == "always" for o in with_nested([operation]))


def _all_inputs(operation: Operation) -> list[Tensor]:
    """The tensors that an operation and its blocks use or wait for."""
    awaited = (x for o in operation.dependencies for x in o.outputs)
    return [*operation.inputs, *awaited, *(x for block in operation.blocks for x in block.captures)]
