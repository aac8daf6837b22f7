"""Graphs over named dimensions: pure Python on names and sizes, no TensorFlow op and no device."""

from __future__ import annotations

import abc
import contextlib
import contextvars
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from meshtf.call_sites import Site, says_where, user_site
from meshtf.dimension import Dimension, Shape, ShapeLike, convert_to_shape
from meshtf.errors import DtypeError, GraphError, ShapeError, nearest
from meshtf.layer_scopes import LayerScope, Whereabouts
from meshtf.tensor_operators import TensorOperators

if TYPE_CHECKING:
    from meshtf.planning.layout_table import LayoutTable, ResolvedLayout
    from meshtf.planning.planner import Planner

_current_graph: contextvars.ContextVar[Graph | None] = contextvars.ContextVar("meshtf_graph", default=None)


@dataclasses.dataclass(frozen=True, slots=True)
class VariableDType:
    """Element types of a variable: in checkpoints, on the device, and as the program reads it.

    `slice_dtype` and `activation_dtype` default to `master_dtype`.

    Examples:
      >>> bfloat16 = mtf.VariableDType(master_dtype=tf.float32, slice_dtype=tf.float32, activation_dtype=tf.bfloat16)
      >>> mtf.get_variable(mesh, "w", "hidden:8", bfloat16)
      w [hidden:8] bfloat16
    """

    master_dtype: tf.DType = tf.float32
    slice_dtype: tf.DType | None = None
    activation_dtype: tf.DType | None = None

    @says_where
    def __post_init__(self) -> None:
        object.__setattr__(self, "master_dtype", dtype_of(self.master_dtype))
        object.__setattr__(self, "slice_dtype", dtype_of(self.slice_dtype or self.master_dtype))
        object.__setattr__(self, "activation_dtype", dtype_of(self.activation_dtype or self.master_dtype))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where an operation is: in the program itself, or in a block of it."""

    what: str


PROGRAM = Place("the program")


class Graph:
    """Operations in the order in which they were made, the variables they use, and the scopes that name them.

    Args:
      name: of the program, in messages and reports.
      variable_dtype: of variables whose layer says none; `VariableDType()` by default, float32.
      is_initial: whether the program computes initial values: its random bits then do not depend on a step.
      layers_keep: what the gradients of scans and stacks of layers keep at most, whatever these say; see
        `RecomputePolicy`.

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
    ) -> None:
        self.name = checked_name(name, "a graph")
        self.is_initial = is_initial
        self.layers_keep = layers_keep
        self.variable_dtype = variable_dtype or VariableDType()
        self.operations: list[Operation] = []
        self._outside: list[list[Operation]] = []
        self._places: list[frozenset[Place]] = [frozenset([PROGRAM])]
        self.place = PROGRAM
        self.variables: dict[str, Operation] = {}
        self.summaries: dict[str, Any] = {}
        """What goes to TensorBoard; see `mtf.scalar_summary`."""
        self.exports: dict[str, Tensor] = {}
        """Tensors that may be fetched by name; see `mtf.export`."""
        self.makes_variables: list[Any] = []
        """What `mtf.get_variable` asks inside a stack of layers, innermost last; see `mtf.layer_stack`."""
        self._scopes: list[str] = []
        self._layer_scopes: list[LayerScope] = []
        self._whereabouts: Whereabouts | None = None
        self._names: dict[str, int] = {}
        self._scope_of_tensorflow = _scope_of_tensorflow()

    @property
    def trainable_variables(self) -> list[Any]:
        return [v for v in self.variables.values() if v.trainable]  # type: ignore[attr-defined]

    @property
    def scope(self) -> str:
        """The path of the open scopes, as `decoder/layer_000`; empty outside."""
        return "/".join(self._scopes)

    @property
    def layer_scopes(self) -> tuple[LayerScope, ...]:
        """The open scopes that are a layer's, outermost first."""
        return tuple(self._layer_scopes)

    def scoped(self, name: str) -> str:
        return f"{self.scope}/{name}" if self._scopes else name

    def check_scope_of_tensorflow(self) -> None:
        """GraphError inside a tf.variable_scope opened since the graph began: it does not name what is made here."""
        opened = _scope_of_tensorflow()
        if opened != self._scope_of_tensorflow:
            name = opened.removeprefix(f"{self._scope_of_tensorflow}/")
            raise GraphError(
                f'tf.variable_scope("{opened}") is open, and does not name variables of meshtf, so that layers in '
                f'scopes of different names would share theirs; open mtf.variable_scope("{name}") in its place'
            )

    def operand(self, value: Any, beside: Tensor) -> Any:
        """What an operator is given that stands between a tensor and a value: the value itself."""
        return value

    def tensor(self, operation: Operation, shape: Shape, dtype: tf.DType, index: int) -> Tensor:
        """A result of an operation, which a graph may have a class of its own for."""
        return Tensor(operation, shape, dtype, index)

    def label_variable(self, variable: Operation, name: str) -> None:
        """Called where a program sets the name of a variable that is there."""
        raise GraphError(f"{variable!r} is made, and keeps its name; give mtf.get_variable the name {name!r}")

    def attribute_of(self, operation: Operation, name: str) -> Any:
        """What an operation is asked for that its class does not have."""
        raise AttributeError(f"{operation!r} has no attribute {name!r}", name=name, obj=operation)

    def unique_name(self, name: str, mark_as_used: bool = True) -> str:
        """`name` under the open scopes, with `_1`, `_2`, ... appended where it is taken."""
        base = self.scoped(checked_name(name, "an operation"))
        candidate, count = base, self._names.get(base, 0)
        while candidate in self._names:
            candidate, count = f"{base}_{count}", count + 1
        if mark_as_used:
            self._names[base] = max(count, 1)
            self._names.setdefault(candidate, 1)
        return candidate

    @contextlib.contextmanager
    def variable_scope(self, name: str | None = None, default_name: str | None = None) -> Iterator[str]:
        """Opens a scope: `name` as it is (entering it again shares its variables), or `default_name` made unique."""
        if not (name or default_name):
            raise GraphError("a scope needs a name or a default_name")
        if name is None:
            name = self.unique_name(f"{default_name}").rsplit("/", 1)[-1]
        self._scopes.append(checked_name(name, "a scope"))
        try:
            yield self.scope
        finally:
            self._scopes.pop()

    @contextlib.contextmanager
    def layer_scope(self, name: str, dim: Dimension, number: int | None = None) -> Iterator[None]:
        """Opens the scope of one layer of a stack, or of all of them where no number is given."""
        with self.inside_layers(LayerScope(self.scoped(name), dim, number)):
            yield

    @contextlib.contextmanager
    def inside_layers(self, scope: LayerScope) -> Iterator[None]:
        """Opens a scope of layers, in place of the open scopes."""
        self._layer_scopes.append(scope)
        try:
            with self.root_scope(), self.variable_scope(scope.path):
                yield
        finally:
            self._layer_scopes.pop()

    @contextlib.contextmanager
    def variable_scopes_of(self, full_name: str, layer_scopes: Sequence[LayerScope]) -> Iterator[None]:
        """Opens a scope of a variable's whole name, inside the scopes of layers that it was made in."""
        before, self._layer_scopes = self._layer_scopes, [*layer_scopes]
        try:
            with self.root_scope(), self.variable_scope(full_name):
                yield
        finally:
            self._layer_scopes = before

    @contextlib.contextmanager
    def gradient_of(self, operation: Operation) -> Iterator[None]:
        """Opens the scope of gradients. What is made inside is for rules by place where the operation is."""
        before, self._whereabouts = self._whereabouts, operation.whereabouts
        try:
            with self.variable_scope("gradients"):
                yield
        finally:
            self._whereabouts = before

    def whereabouts(self, name: str) -> Whereabouts:
        """Of an operation of this name that is made now."""
        return self._whereabouts or Whereabouts(name, self.layer_scopes)

    @contextlib.contextmanager
    def rehearsal(self) -> Iterator[None]:
        """At its end, what was made inside is forgotten: operations, variables, and names that were used up."""
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
          beside: operations of other blocks that may be used, as those of a forward pass are by its gradient.
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
        """All operations made so far, in blocks too, those of blocks that are being built included."""
        for operations in [*self._outside, self.operations]:
            yield from with_nested(operations)

    def check_in_reach(self, tensor: Tensor) -> None:
        """GraphError for a tensor of a block that has ended: it is there inside the block only."""
        if tensor.operation.place not in self._places[-1]:
            raise GraphError(
                f"{tensor}, made at {tensor.operation.site}, is inside {tensor.operation.place.what}, and is used "
                f"outside; let the function return it"
            )

    @contextlib.contextmanager
    def root_scope(self) -> Iterator[None]:
        """Leaves all scopes."""
        scopes, self._scopes = self._scopes, []
        try:
            yield
        finally:
            self._scopes = scopes

    def __enter__(self) -> Graph:
        self._tokens = [*getattr(self, "_tokens", []), _current_graph.set(self)]
        return self

    def __exit__(self, *_: object) -> None:
        _current_graph.reset(self._tokens.pop())


class Mesh:
    """A tag that says on which mesh a tensor lives; its shape comes with the lowering.

    Examples:
      >>> mtf.zeros(mtf.Mesh(mtf.Graph()), "batch:4")
      constant [batch:4] float32
    """

    def __init__(self, graph: Graph, name: str = "mesh") -> None:
        self.graph = graph
        self.name = name


class Tensor(TensorOperators):
    """A tensor over named dimensions: an output of an operation. It has no value while the graph is built.

    Attributes:
      operation: what it is made by.
      shape: its named shape.
      dtype: its element type.
      index: which of the operation's outputs it is.

    Examples:
      >>> isinstance(x, mtf.Tensor), x.name, x.shape, x.dtype.name
      (True, 'x', Shape[batch:4 hidden:8], 'float32')
      >>> 1.0 - x / 2.0
      sub [batch:4 hidden:8] float32
    """

    def __init__(self, operation: Operation, shape: Shape, dtype: tf.DType, index: int = 0) -> None:
        self.operation = operation
        self.shape = shape
        self.dtype = dtype
        self.index = index

    @property
    def name(self) -> str:
        return f"{self.operation.name}:{self.index}" if self.index else self.operation.name

    @property
    def graph(self) -> Graph:
        return self.operation.graph

    @property
    def mesh(self) -> Mesh:
        return self.operation.mesh

    @property
    def size(self) -> int:
        return self.shape.size

    def _operand(self, other: Any) -> Any:
        return self.graph.operand(other, self)

    @property
    def is_overridden(self) -> bool:
        """Whether the layout comes, in part, from `with_layout` or `replicate`."""
        return self.operation.overrides_layout

    def __repr__(self) -> str:
        return f"{self.name} [{self.shape}] {self.dtype.name}"


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """Operations that run inside another: the body of a loop, or a branch. `bound` are the tensors given to it."""

    operations: tuple[Operation, ...]
    bound: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def captures(self) -> list[Tensor]:
        """Tensors from outside that the operations use, or that are returned as they are."""
        inside = {*self.bound, *(t for o in self.operations for t in o.outputs)}
        used = [*(x for o in self.operations for x in o.inputs), *self.outputs]
        return list(dict.fromkeys(x for x in used if x not in inside))


def with_nested(operations: Iterable[Operation]) -> Iterator[Operation]:
    """Operations, and those of their blocks."""
    for operation in operations:
        yield operation
        for block in operation.blocks:
            yield from with_nested(block.operations)


class Operation(abc.ABC):
    """A node of the graph. Its shape rule, its gradient and its lowering stand together in its class.

    A subclass checks its inputs, then calls this constructor, which appends the operation to the graph: an operation
    that is refused leaves no trace.

    Args:
      inputs: the tensors that it is of, all on one mesh.
      outputs: named shape and dtype of each result.
      name: under the open scopes, made unique.
      mesh: where it is, if it has no inputs.

    Raises:
      GraphError: inputs of different graphs or meshes, or from inside a loop that has ended, or none and no mesh.

    Examples:
      >>> operation = (2.0 * x).operation
      >>> isinstance(operation, mtf.Operation), operation.name, operation.inputs, operation.outputs
      (True, 'multiply', (x [batch:4 hidden:8] float32,), (multiply [batch:4 hidden:8] float32,))
    """

    passes_pending_sums: bool = False
    """Linear in all inputs together: sums of its inputs over cores may be left to its consumers."""

    prefers_sums_done: bool = False
    """It rounds, so that where it costs nothing its inputs' sums over cores are done first."""

    takes_any_layout: bool = False
    """Works on its input as it is held, whatever layout that is; its output may then be brought to its own."""

    takes_padding: bool = False
    """Works on slices of which the last end before they are full, and leaves such: see `Planner.read`."""

    is_product: bool = False
    """A contraction or a convolution: costly, and worth keeping rather than computing again."""

    is_cheap: bool = False
    """Element by element, from its inputs alone: it costs less to do again than a large result to keep."""

    has_side_effect: bool = False
    """Lowered although no fetch needs it (assignments, prints, checks)."""

    why_not_compiled: str = ""
    """Why a loop that has it cannot be compiled by XLA, as words that follow its name; empty where it can."""

    def __init__(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[tuple[Shape, tf.DType]],
        *,
        name: str,
        mesh: Mesh | None = None,
    ) -> None:
        if mesh is None and not inputs:
            raise GraphError(f"operation {name} has no input and was given no mesh")
        self.mesh: Mesh = check_mesh(mesh) if mesh is not None else inputs[0].mesh
        for x in inputs:
            if x.mesh is not self.mesh:
                raise GraphError(
                    f"{inputs[0]} and {x} belong to different {'graphs' if x.graph is not self.graph else 'meshes'}; "
                    f"hand values from one program to another as inputs, or in variables of a shared store"
                )
            self.graph.check_in_reach(x)
        self.inputs: tuple[Tensor, ...] = tuple(inputs)
        self.name: str = self.graph.unique_name(name)
        self.site: Site = user_site()
        self.whereabouts: Whereabouts = self.graph.whereabouts(self.name)
        tensor = self.graph.tensor
        self.outputs: tuple[Tensor, ...] = tuple(tensor(self, s, d, i) for i, (s, d) in enumerate(outputs))
        self.place: Place = self.graph.place
        self.dependencies: tuple[Operation, ...] = ()
        self.blocks: tuple[Block, ...] = ()
        self.overrides_layout: bool = any(x.operation.overrides_layout for x in inputs)
        self.like: Tensor | None = None
        """The tensor whose layout the one output has, where it is that tensor's gradient."""
        self.source: Tensor | None = None
        """What it is in a block, or is there a part of, where it is given to a block."""
        self.graph.operations.append(self)

    @property
    def graph(self) -> Graph:
        return self.mesh.graph

    @property
    def has_gradient(self) -> bool:
        """Whether gradients flow through it: some input and some output are floating or complex."""
        return any(is_differentiable(t.dtype) for t in self.inputs) and any(
            is_differentiable(t.dtype) for t in self.outputs
        )

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """Gradients of the inputs, from those of the outputs (None: unconnected).

        One may have dimensions that its input lacks, as that of a broadcast has: autodiff sums over them.
        """
        raise GraphError(f"operation {self.name} ({type(self).__name__}) has no gradient")

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        """Layouts of the outputs: by name from the inputs that were overridden, else from the rules."""
        return [layouts.inherited(self.inputs, output.shape) for output in self.outputs]

    def needs_whole(self, name: str) -> bool:
        """Whether it must see its tensors whole along a dimension of this name, where that is padded. All of those that
        do not take padding must; but for one that treats the positions along a dimension alike."""
        return not self.takes_padding

    def lay_out_like(self, x: Tensor) -> None:
        """Gives the one output the layout of another tensor of its shape."""
        self.like = x
        self.overrides_layout = x.is_overridden

    def pending_axes(self, layouts: LayoutTable) -> tuple[str, ...]:
        """Mesh axes over which this operation itself leaves its output a pending sum."""
        return ()

    def gathers_because(self, layouts: LayoutTable) -> str:
        """Why it gathers what is split, where that is for want of a way to work on slices; empty where it is not.

        What operands or results are gathered for because their layouts say so is no such want.
        """
        return ""

    def output_pending_axes(self, layouts: LayoutTable) -> Sequence[tuple[str, ...]]:
        """The same for each output, in an operation whose outputs differ in it."""
        return [self.pending_axes(layouts)] * len(self.outputs)

    @abc.abstractmethod
    def lower(self, planner: Planner) -> None:
        """Adds this operation's instructions to the plan."""

    if not TYPE_CHECKING:  # a type checker would take it for a promise of every attribute

        def __getattr__(self, name: str) -> Any:
            if "mesh" not in vars(self):  # it is being made
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}", name=name, obj=self)
            return self.graph.attribute_of(self, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


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


def _scope_of_tensorflow() -> str:
    """The name of the innermost open tf.variable_scope; empty outside of all."""
    return tf.compat.v1.get_variable_scope().name


def is_differentiable(dtype: tf.DType) -> bool:
    return dtype.is_floating or dtype.is_complex


def sum_dtype(dtype: tf.DType) -> tf.DType:
    """The dtype in which to sum many of a dtype: float32 for those that are narrower."""
    return tf.float32 if dtype in (tf.bfloat16, tf.float16) else dtype


@says_where
def checked_name(name: object, what: str) -> str:
    """A name, which is text. GraphError for what is none, and for one that is empty or has an empty part."""
    if not isinstance(name, str) or not all(name.split("/")):
        raise GraphError(f'the name of {what} is text, such as "decoder" or "decoder/layer", and not {name!r}')
    return name


def shape_of(x: ShapeLike) -> Shape:
    """As `convert_to_shape`, for a shape that must be given."""
    shape = convert_to_shape(x)
    if shape is None:
        raise ShapeError('a shape is needed here, and None was given; for a scalar give [] or ""')
    return shape


def dtype_of(x: Any) -> tf.DType:
    """As `tf.as_dtype`; DtypeError with the nearest name for what is none."""
    try:
        dtype = tf.as_dtype(x)
    except TypeError:
        names = ("bool", "int32", "int64", "uint8", "bfloat16", "float16", "float32", "float64", "complex64")
        raise DtypeError(f"not a dtype: {x!r}{nearest(str(x), names) or '; give one such as tf.float32'}") from None
    if not (dtype.is_integer or dtype.is_floating or dtype.is_complex or dtype.is_bool):
        raise DtypeError(f"tensors are of numbers or of bool, not of {dtype.name}")
    return dtype


def same_dtype(tensors: Sequence[Tensor]) -> tf.DType:
    """The one dtype of all; DtypeError that names those that differ. There is no implicit promotion."""
    dtype = tensors[0].dtype
    for x in tensors:
        if x.dtype != dtype:
            raise DtypeError(f"{tensors[0].dtype.name} and {x.dtype.name} meet; convert one with mtf.cast")
    return dtype


def check_mesh(x: object) -> Mesh:
    if not isinstance(x, Mesh):
        raise GraphError(
            f"an mtf.Mesh is needed, not {type(x).__name__}; it is `x.mesh` of any tensor, and what the body of an "
            f"mtf.function is given as `mesh`"
        )
    return x


def check_tensors(xs: Any) -> list[Tensor]:
    """A list of tensors, from one or several."""
    if isinstance(xs, Tensor):
        return [xs]
    return [check_tensor(x) for x in xs] if isinstance(xs, Iterable) else [check_tensor(xs)]


def check_tensor(x: object, what: str = "operand") -> Tensor:
    if not isinstance(x, Tensor):
        raise GraphError(
            f"the {what} must be an mtf.Tensor, not {type(x).__name__}; bring values in as inputs of mtf.function, "
            f"or with mtf.constant or mtf.import_tf_tensor"
        )
    return x
