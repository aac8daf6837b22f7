"""The graph of a program: its operations, its variables, and the blocks that are being built."""

from __future__ import annotations

import contextlib
import contextvars
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from meshtf.call_sites import user_site
from meshtf.dimension import Shape
from meshtf.errors import GraphError
from meshtf.graph.blocks import PROGRAM, Place, with_nested
from meshtf.graph.platform_kernels import NO_KERNELS, PlatformKernels
from meshtf.graph.scopes import Scopes, checked_name
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType

if TYPE_CHECKING:
    from meshtf.graph.mesh import Mesh
    from meshtf.graph.operation import Operation

_current_graph: contextvars.ContextVar[Graph | None] = contextvars.ContextVar("meshtf_graph", default=None)

_NO_VARIABLE_DTYPE = """\
variable_dtype must be an mtf.VariableDType, and is {given!r}; mtf.VariableDType(activation_dtype="bfloat16") keeps
variables in float32 and reads them in bfloat16"""


class Graph(Scopes):
    """The operations of a program in program order, its variables, and the scopes that name them.

    Args:
      name: the program's name, in messages and reports.
      variable_dtype: the dtype of variables whose layer sets none. The default is `VariableDType()`, float32.
      is_initial: whether the program computes initial values. Its random bits then do not depend on the step.
      layers_keep: an upper limit on what gradients of scans and stacks of layers keep, whatever their own policy; see
        `RecomputePolicy`.
      kernels: the platform-specific kernels that layers may choose.

    Examples:
      >>> graph = mtf.Graph("program")
      >>> with graph:
      ...     y = mtf.ones(mtf.Mesh(graph), "n:3") + 1.0
      >>> graph.operations
      [FillOperation(constant), ElementwiseOperation(add)]
    """

    def __init__(
        self,
        name: str = "program",
        variable_dtype: VariableDType | None = None,
        *,
        is_initial: bool = False,
        layers_keep: str | None = None,
        kernels: PlatformKernels = NO_KERNELS,
    ) -> None:
        super().__init__()
        self.name = checked_name(name, "a graph")
        self.is_initial = is_initial
        self.layers_keep = layers_keep
        self.kernels = kernels
        self._lowerings: list[weakref.ref[Any]] = []
        self.seed = 0
        """The seed of the program's random bits, for `x.eval()` while the graph is built."""
        if variable_dtype is not None and not isinstance(variable_dtype, VariableDType):
            raise GraphError(_NO_VARIABLE_DTYPE.format(given=variable_dtype))
        self.variable_dtype = variable_dtype or VariableDType()
        self.meshes: list[Mesh] = []
        """The meshes of the graph. If there is only one, functions that take a mesh may be called without it."""
        self.operations: list[Operation] = []
        self._outside: list[list[Operation]] = []
        self._goes_on: list[bool] = []
        self._places: list[frozenset[Place]] = [frozenset([PROGRAM])]
        self.place = PROGRAM
        self.variables: dict[str, Operation] = {}
        self.summaries: dict[str, Any] = {}
        """Values for TensorBoard, by name; see `mtf.scalar_summary`."""
        self.exports: dict[str, Tensor] = {}
        """Tensors that may be fetched by name; see `mtf.export`."""
        self.makes_variables: list[Any] = []
        """The enclosing stacks of layers, innermost last. `mtf.get_variable` calls them; see `mtf.layer_stack`."""
        self.variable_storage: list[Any] = []
        """The other forms in which variables are kept, innermost last; see `mtf.quantization.quantized_weights`."""
        self.notes: list[tuple[Place, list[tuple[str, Tensor]]]] = []
        """The lists that collect notes, innermost last, each with its place; see `control_flow/notes.py`."""

    def note_lowering(self, lowering: Any) -> None:
        """Keeps a weak reference to an `mtf.Lowering` of the graph, so that views of tensors can show its layouts."""
        self._lowerings = [*(ref for ref in self._lowerings if ref() is not None), weakref.ref(lowering)]

    @property
    def last_lowering(self) -> Any:
        """The latest `mtf.Lowering` of the graph that still exists; None if there is none."""
        lowerings = [ref() for ref in self._lowerings]
        return next((lowering for lowering in reversed(lowerings) if lowering is not None), None)

    @property
    def trainable_variables(self) -> list[Any]:
        return [v for v in self.variables.values() if v.trainable]  # type: ignore[attr-defined]

    def operand(self, value: Any, beside: Tensor) -> Any:
        """Converts the other operand of a tensor's operator. Here it is unchanged; subclasses may convert it."""
        return value

    def tensor(self, operation: Operation, shape: Shape, dtype: tf.DType, index: int) -> Tensor:
        """Makes a result of an operation. Subclasses of Graph may use their own class of tensors."""
        return Tensor(operation, shape, dtype, index)

    def label_variable(self, variable: Operation, name: str) -> None:
        """Called when a program assigns to the name of an existing variable."""
        raise GraphError(f"{variable!r} is made, and keeps its name; give mtf.get_variable the name {name!r}")

    def attribute_of(self, operation: Operation, name: str) -> Any:
        """Called when a program reads an attribute that the class of an operation does not have."""
        raise AttributeError(f"{operation!r} has no attribute {name!r}", name=name, obj=operation)

    @contextlib.contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Discards at its end everything that was made inside: operations, variables and used names."""
        tables: list[dict[str, Any]] = [self.variables, self.summaries, self.exports, self._names]
        before = [dict(table) for table in tables]
        lists = [*self._outside, self.operations]
        lengths = [len(operations) for operations in lists]
        try:
            with self.capture("a rehearsal"):
                yield
        finally:
            for table, kept in zip(tables, before, strict=True):
                table.clear()
                table.update(kept)
            for operations, length in zip(lists, lengths, strict=True):
                del operations[length:]

    @contextlib.contextmanager
    def capture(
        self,
        what: str = "a block",
        given: Iterable[Tensor] = (),
        beside: Iterable[Operation] = (),
        *,
        goes_on: bool = False,
    ) -> Iterator[list[Operation]]:
        """Collects the operations made inside in a separate list, for the body of a loop or a branch.

        Args:
          what: names the block in messages.
          given: the block's inputs.
          beside: operations of other blocks that this one may use. A gradient uses operations of its forward pass.
          goes_on: whether `mtf.gradients` inside differentiates through the operations before the block, too.
        """
        (outside, self.operations), (before, self.place) = (self.operations, []), (self.place, Place(what))
        for tensor in given:
            tensor.operation.place = self.place
        self._outside.append(outside)
        self._goes_on.append(goes_on)
        self._places.append(self._places[-1] | {self.place} | {o.place for o in beside})
        try:
            yield self.operations
        finally:
            self.operations, self.place = self._outside.pop(), before
            self._places.pop()
            self._goes_on.pop()

    def adopt(self, operation: Operation) -> None:
        """Moves an operation of a finished block to the block or program that is being built."""
        operation.place = self.place
        self.operations.append(operation)

    @contextlib.contextmanager
    def outermost(self) -> Iterator[None]:
        """Adds operations made inside to the program itself, before the loop whose body is being built."""
        inside, self.operations = self.operations, (self._outside or [self.operations])[0]
        place, self.place = self.place, PROGRAM
        try:
            yield
        finally:
            self.operations, self.place = inside, place

    @property
    def program_operations(self) -> list[Operation]:
        """The operations of the program itself, without the operations of a block that is being built."""
        return (self._outside or [self.operations])[0]

    @property
    def differentiable_operations(self) -> list[Operation]:
        """The operations through which `mtf.gradients` differentiates, in program order."""
        found = self.operations
        for outside, goes_on in zip(reversed(self._outside), reversed(self._goes_on), strict=True):
            if not goes_on:
                break
            found = [*outside, *found]
        return found

    def every_operation(self) -> Iterator[Operation]:
        """All operations made so far, including the operations of finished and unfinished blocks."""
        for operations in [*self._outside, self.operations]:
            yield from with_nested(operations)

    def check_in_reach(self, tensor: Tensor) -> None:
        """Checks that a tensor can be used here. A tensor of a finished block raises GraphError."""
        if tensor.operation.place not in self._places[-1]:
            raise GraphError(
                f"{tensor}, made at {tensor.operation.site}, is inside {tensor.operation.place.what}, and is used "
                f"outside; let the function return it"
            )

    def __enter__(self) -> Graph:
        self._tokens = [*getattr(self, "_tokens", []), _current_graph.set(self)]
        return self

    def __exit__(self, *_: object) -> None:
        _current_graph.reset(self._tokens.pop())


def current_graph() -> Graph:
    """The graph that `mtf.function` or `with graph:` is building. Raises GraphError outside of both.

    Examples:
      >>> mtf.current_graph() is mesh.graph
      True
    """
    graph = _current_graph.get()
    if graph is None:
        raise GraphError(
            "no graph is being built here; call this inside the body of an mtf.function, or inside `with graph:`\n"
            f"  at {user_site()}"
        )
    return graph


@contextlib.contextmanager
def variable_scope(name: str | None = None, default_name: str | None = None) -> Iterator[str]:
    """Opens a scope of the current graph that names variables, operations and random keys.

    Examples:
      >>> with mtf.variable_scope("decoder"), mtf.variable_scope("layer_0") as path:
      ...     w = mtf.get_variable(mesh, "kernel", "hidden:8")
      >>> path, w
      ('decoder/layer_0', decoder/layer_0/kernel [hidden:8] float32)
    """
    with current_graph().variable_scope(name, default_name) as path:
        yield path
