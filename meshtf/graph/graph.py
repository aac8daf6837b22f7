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


class Graph(Scopes):
    """Operations in the order in which they were made, the variables they use, and the scopes that name them.

    Args:
      name: the program's name, in messages and reports.
      variable_dtype: the dtype of variables whose layer says none; `VariableDType()` by default, float32.
      is_initial: whether the program computes initial values: its random bits then do not depend on a step.
      layers_keep: the most that the gradients of scans and stacks of layers keep, whatever these say; see
        `RecomputePolicy`.
      kernels: the kernels that the platform has of its own, and may be chosen.

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
        self.variable_dtype = variable_dtype or VariableDType()
        self.meshes: list[Mesh] = []
        """The meshes that were made for it. If there is one, functions that take a mesh may be called without it."""
        self.operations: list[Operation] = []
        self._outside: list[list[Operation]] = []
        self._places: list[frozenset[Place]] = [frozenset([PROGRAM])]
        self.place = PROGRAM
        self.variables: dict[str, Operation] = {}
        self.summaries: dict[str, Any] = {}
        """Values for TensorBoard, by name; see `mtf.scalar_summary`."""
        self.exports: dict[str, Tensor] = {}
        """Tensors that may be fetched by name; see `mtf.export`."""
        self.makes_variables: list[Any] = []
        """The stacks of layers around, innermost last, which `mtf.get_variable` asks; see `mtf.layer_stack`."""
        self.variable_storage: list[Any] = []
        """The other forms in which variables are kept, innermost last; see `mtf.quantization.quantized_weights`."""
        self.notes: list[tuple[Place, list[tuple[str, Tensor]]]] = []
        """Where notes go, innermost last, and the place in which each collects; see `control_flow/notes.py`."""

    def note_lowering(self, lowering: Any) -> None:
        """Remembers an `mtf.Lowering` of the graph while it exists, so that views of tensors show its layouts."""
        self._lowerings = [*(ref for ref in self._lowerings if ref() is not None), weakref.ref(lowering)]

    @property
    def last_lowering(self) -> Any:
        """The `mtf.Lowering` that was made last of the graph and still exists; None if there is none."""
        lowerings = [ref() for ref in self._lowerings]
        return next((lowering for lowering in reversed(lowerings) if lowering is not None), None)

    @property
    def trainable_variables(self) -> list[Any]:
        return [v for v in self.variables.values() if v.trainable]  # type: ignore[attr-defined]

    def operand(self, value: Any, beside: Tensor) -> Any:
        """The operand of an operator between a tensor and a value: the value itself."""
        return value

    def tensor(self, operation: Operation, shape: Shape, dtype: tf.DType, index: int) -> Tensor:
        """A result of an operation, which a graph may have a class of its own for."""
        return Tensor(operation, shape, dtype, index)

    def label_variable(self, variable: Operation, name: str) -> None:
        """Called where a program sets the name of a variable that is there."""
        raise GraphError(f"{variable!r} is made, and keeps its name; give mtf.get_variable the name {name!r}")

    def attribute_of(self, operation: Operation, name: str) -> Any:
        """Called when an operation is asked for an attribute that its class does not have."""
        raise AttributeError(f"{operation!r} has no attribute {name!r}", name=name, obj=operation)

    @contextlib.contextmanager
    def rehearsal(self) -> Iterator[None]:
        """Forgets everything that was made inside, at its end: operations, variables, and names that were used up."""
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
        self, what: str = "a block", given: Iterable[Tensor] = (), beside: Iterable[Operation] = ()
    ) -> Iterator[list[Operation]]:
        """Operations made inside go to a list of their own: the body of a loop or of a branch.

        Args:
          what: names the block in messages.
          given: tensors that belong to the block.
          beside: operations of other blocks that may be used. A gradient uses operations of its forward pass.
        """
        (outside, self.operations), (before, self.place) = (self.operations, []), (self.place, Place(what))
        for tensor in given:
            tensor.operation.place = self.place
        self._outside.append(outside)
        self._places.append(self._places[-1] | {self.place} | {o.place for o in beside})
        try:
            yield self.operations
        finally:
            self.operations, self.place = self._outside.pop(), before
            self._places.pop()

    def adopt(self, operation: Operation) -> None:
        """Takes an operation of a block that has ended into what is being built."""
        operation.place = self.place
        self.operations.append(operation)

    @contextlib.contextmanager
    def outermost(self) -> Iterator[None]:
        """Operations made inside go to the program itself, before the loop whose body is being built."""
        inside, self.operations = self.operations, (self._outside or [self.operations])[0]
        place, self.place = self.place, PROGRAM
        try:
            yield
        finally:
            self.operations, self.place = inside, place

    @property
    def program_operations(self) -> list[Operation]:
        """The operations of the program itself, without those of the block that is being built, if one is."""
        return (self._outside or [self.operations])[0]

    def every_operation(self) -> Iterator[Operation]:
        """All operations made so far, including the operations of blocks, and of blocks that are being built."""
        for operations in [*self._outside, self.operations]:
            yield from with_nested(operations)

    def check_in_reach(self, tensor: Tensor) -> None:
        """GraphError for a tensor of a block that has ended: it is there inside the block only."""
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
    """The graph being built. Set by `mtf.function` and by `with graph:`; GraphError outside.

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
