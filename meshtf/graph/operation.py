"""Operations: the nodes of a graph, which the planner lowers."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import tensorflow as tf

from meshtf.call_sites import Site, operation_site
from meshtf.dimension import Shape
from meshtf.errors import GraphError
from meshtf.graph.dtypes import is_differentiable
from meshtf.graph.mesh import Mesh, check_mesh
from meshtf.graph.tensor import Tensor
from meshtf.layer_scopes import ScopedName

if TYPE_CHECKING:
    from meshtf.graph.blocks import Block, Place
    from meshtf.graph.graph import Graph
    from meshtf.planning.layouts.layout_table import LayoutTable, ResolvedLayout
    from meshtf.planning.planner import Planner


Mapped: TypeAlias = Literal["", "by name", "first input", "second input", "all inputs", "always"]
"""How an operation is mapped over one more dimension; see `Operation.mapped`."""


class Operation(abc.ABC):
    """A node of the graph. Its class defines the shape rule, the gradient and the lowering.

    A subclass checks its inputs, then calls this constructor, which appends the operation to the graph. So an operation
    that fails the checks is not added.

    Args:
      inputs: the input tensors, all on one mesh.
      outputs: named shape and dtype of each result.
      name: its name under the open scopes, made unique.
      mesh: its mesh, required if it has no inputs.

    Raises:
      GraphError: inputs are of different graphs or meshes or of a finished block, or there is neither input nor mesh.

    Examples:
      >>> operation = (2.0 * x).operation
      >>> isinstance(operation, mtf.Operation), operation.name, operation.inputs, operation.outputs
      (True, 'multiply', (x [batch:4 hidden:8] float32,), (multiply [batch:4 hidden:8] float32,))
    """

    passes_pending_sums: bool = False
    """Whether it is linear in all inputs together, so that sums of its inputs over cores may be left to its readers."""

    prefers_sums_done: bool = False
    """Whether it rounds its results, so that sums of its inputs over cores are done first if that costs nothing."""

    takes_any_layout: bool = False
    """Whether it works on its input in any layout. Its output may then be converted to the output's own layout."""

    takes_padding: bool = False
    """Whether it can read and return padded slices: see `Planner.read`."""

    is_product: bool = False
    """Whether it is a contraction or a convolution: costly, so keeping its result is better than recomputing it."""

    is_cheap: bool = False
    """Whether it is elementwise and depends on its inputs alone, so recomputing it costs less than keeping it."""

    has_side_effect: bool = False
    """Whether it is lowered even if no fetch needs it: assignments, prints, checks."""

    why_not_compiled: str = ""
    """Why XLA cannot compile a loop with this operation, as words that follow its name; empty if it can."""

    mapped: Mapped = ""
    """The way in which `mtf.vmap` makes it again, with one more dimension in front of every shape in its arguments.

    This is correct if some of its inputs have the dimension ("by name"), if only the first or the second has it, if
    all of them have it ("all inputs"), or even if none has it ("always"). Empty: it cannot be mapped.
    """

    made_with: tuple[tuple[Any, ...], Mapping[str, Any]]
    """The arguments with which it was made."""

    def __init_subclass__(cls) -> None:
        if "__init__" in vars(cls):
            cls.__init__ = _recording(cls.__init__)

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
        self.gradient_of: Operation | None = self.graph.differentiated
        """The operation whose gradient it is a part of; None if it is not part of a gradient."""
        self.site: Site = operation_site() if self.gradient_of is None else self.gradient_of.site.of_gradient
        self.scoped_name: ScopedName = self.graph.scoped_name(self.name)
        tensor = self.graph.tensor
        self.outputs: tuple[Tensor, ...] = tuple(tensor(self, s, d, i) for i, (s, d) in enumerate(outputs))
        self.place: Place = self.graph.place
        self.dependencies: tuple[Operation, ...] = ()
        self.blocks: tuple[Block, ...] = ()
        self.overrides_layout: bool = any(x.operation.overrides_layout for x in inputs)
        self.like: Tensor | None = None
        """The tensor whose layout its only output has, because the output is that tensor's gradient; else None."""
        self.source: Tensor | None = None
        """The outer tensor that a block's input equals or is a slice of; None for other operations."""
        self.updates: str = ""
        """The name of the variable whose update it is a part of; empty if there is none or more than one."""
        self.graph.operations.append(self)

    @property
    def graph(self) -> Graph:
        return self.mesh.graph

    @property
    def label(self) -> str:
        """The name in reports: `gradient of decoder/layer_003/query/einsum`, or `update of dense/kernel`.

        In a scan over a stack of layers, `decoder/layer_*` means all of them.
        """
        if self.updates:
            return f"update of {self.updates}"
        if self.gradient_of is not None:
            return f"gradient of {self.gradient_of.label}"
        return self.scoped_name.pattern

    @property
    def where(self) -> str:
        """The label and the line, as errors show them."""
        return f"{self.label}, at {self.site.text}"

    @property
    def has_gradient(self) -> bool:
        """Whether gradients flow through it: some input and some output are floating or complex."""
        return any(is_differentiable(t.dtype) for t in self.inputs) and any(
            is_differentiable(t.dtype) for t in self.outputs
        )

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradients of the inputs, from the gradients of the outputs. None means that there is no gradient.

        A gradient may have dimensions that its input lacks, for example in a broadcast. Autodiff sums over them.
        """
        raise GraphError(f"operation {self.name} ({type(self).__name__}) has no gradient")

    def output_layouts(self, layouts: LayoutTable) -> Sequence[ResolvedLayout]:
        """The layouts of the outputs. Dimensions of overridden inputs keep their layout; the rules decide the rest."""
        return [layouts.inherited(self.inputs, output.shape) for output in self.outputs]

    def needs_whole(self, name: str) -> bool:
        """Whether the operation needs its tensors whole along a padded dimension of this name.

        This is true for operations that do not take padding, unless they treat all positions along the dimension alike.
        """
        return not self.takes_padding

    def lay_out_like(self, x: Tensor) -> None:
        """Gives the only output the layout of another tensor of the same shape."""
        self.like = x
        self.overrides_layout = x.is_overridden

    def pending_axes(self, layouts: LayoutTable) -> tuple[str, ...]:
        """The mesh axes over which this operation leaves a pending sum in its output."""
        return ()

    def gathers_because(self, layouts: LayoutTable) -> str:
        """Why the operation gathers split tensors, if it cannot work on slices; else empty.

        It is also empty if tensors are gathered only because the layouts of operands or results require it.
        """
        return ""

    def output_pending_axes(self, layouts: LayoutTable) -> Sequence[tuple[str, ...]]:
        """The `pending_axes` of each output. An operation overrides this if they differ between its outputs."""
        return [self.pending_axes(layouts)] * len(self.outputs)

    @abc.abstractmethod
    def lower(self, planner: Planner) -> None:
        """Adds this operation's instructions to the plan."""

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __getattr__(self, name: str) -> Any:
            if "mesh" not in vars(self):  # it is being made
                raise AttributeError(f"{type(self).__name__} has no attribute {name!r}", name=name, obj=self)
            return self.graph.attribute_of(self, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


def _recording(init: Callable[..., None]) -> Callable[..., None]:
    """Wraps a constructor to record its arguments, unless the constructor of a subclass has recorded its own."""

    @functools.wraps(init)
    def recorded(self: Operation, *args: Any, **kwargs: Any) -> None:
        if "made_with" not in vars(self):
            self.made_with = (args, kwargs)
        init(self, *args, **kwargs)

    return recorded
