"""Which layout each tensor of a graph has: from the rules, or inherited from overridden tensors; all checked."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from meshtf.axis_parts import WHOLE_AXES, AxisParts
from meshtf.call_sites import user_site
from meshtf.dimension import Dimension, Shape
from meshtf.errors import LayoutError, LayoutWarning, nearest
from meshtf.graph import Operation, Tensor, with_nested
from meshtf.layout import Axes, LayoutRules, TensorLayout, check_mesh_axes, check_tensor_layout

MOST_LISTED = 3
"""Outputs of an operation that a message names."""


@dataclasses.dataclass(frozen=True, slots=True)
class ResolvedLayout:
    """A tensor's layout, and whether it came from an override rather than from the rules."""

    layout: TensorLayout
    is_overridden: bool = False


class LayoutTable:
    """The layout of every tensor of a graph on one mesh.

    Rules name the axes of the mesh as users know it; layouts, the parts of those that are taken apart.
    """

    def __init__(self, mesh_shape: Shape, rules: LayoutRules, axis_parts: AxisParts = WHOLE_AXES) -> None:
        self.whole_mesh_shape = axis_parts.joined(mesh_shape)
        check_mesh_axes(rules, self.whole_mesh_shape)
        self.mesh_shape = mesh_shape
        self.rules = rules
        self.axis_parts = axis_parts
        self._axes_by_name = {name: axis_parts.axes_taken_apart(axes) for name, axes in rules.rules}
        self._trivial = {d.name for d in mesh_shape if d.size == 1}
        self._resolved: dict[Tensor, ResolvedLayout] = {}
        self._chosen: set[Tensor] = set()
        self._under_rules: dict[Shape, ResolvedLayout] = {}
        self.sums_of_blocks: dict[Any, Any] = {}
        """What `pending_sums.block_sums` has found."""

    def __getitem__(self, tensor: Tensor) -> TensorLayout:
        return self._resolved[tensor].layout

    def resolved(self, tensor: Tensor) -> ResolvedLayout:
        """A tensor's layout; of one that no operation of the program needs, but another is laid out like, found now."""
        if tensor not in self._resolved:
            for x in tensor.operation.inputs:
                self.resolved(x)
            self.resolve([tensor.operation])
        return self._resolved[tensor]

    def given(self, tensor: Tensor) -> ResolvedLayout:
        """The layout of a tensor that is given to a block; see `give`."""
        return self._resolved[tensor]

    def resolve(self, operations: Iterable[Operation]) -> None:
        """Lays out the outputs of operations in program order.

        Raises:
          LayoutError: naming the tensor, the dimension, the sizes, the rule and the user's line.
        """
        for operation in operations:
            try:
                like = operation.like
                layouts = operation.output_layouts(self) if like is None else [self.resolved(like)]
                for output, layout in zip(operation.outputs, layouts, strict=True):
                    self._resolved[output] = layout
            except LayoutError as error:
                if "\n  in operation " in str(error):
                    raise  # it is of one inside a loop or a branch, and says of which
                raise LayoutError(f"{error}\n  in operation {_listed(operation)}\n  at {operation.site}") from None

    def give(self, layouts: Mapping[Tensor, ResolvedLayout]) -> None:
        """Says how tensors that are given to a block are laid out."""
        self._resolved.update(layouts)

    def choose(self, layouts: Mapping[Tensor, ResolvedLayout]) -> None:
        """Gives tensors other layouts than they were resolved to: how a pass changes a program."""
        self._resolved.update(layouts)
        self._chosen.update(layouts)
        self.sums_of_blocks.clear()

    def is_chosen(self, tensor: Tensor) -> bool:
        """Whether a pass gave the tensor its layout."""
        return tensor in self._chosen

    def under_rules(self, shape: Shape) -> ResolvedLayout:
        """The layout that the rules alone give a shape."""
        resolved = self._under_rules.get(shape)
        if resolved is None:
            resolved = ResolvedLayout(self.under(self.rules, shape))
            self._under_rules[shape] = resolved
        return resolved

    def under(self, rules: LayoutRules, shape: Shape) -> TensorLayout:
        """The layout that some rules give a shape. LayoutError where they do not fit it."""
        layout = rules.tensor_layout(shape, self.whole_mesh_shape)
        return self.effective(self.axis_parts.layout_taken_apart(layout))

    def inherited(self, inputs: Sequence[Tensor], shape: Shape) -> ResolvedLayout:
        """Dimension by dimension: the split of the overridden operand that carries it, else the rules'.

        Raises:
          LayoutError: two overridden operands carry one dimension differently.
        """
        overridden = [x for x in inputs if self._resolved[x].is_overridden]
        if not overridden:
            return self.under_rules(shape)
        axes = tuple(self._inherited_axes(overridden, dim) for dim in shape)
        layout = TensorLayout(axes)
        check_tensor_layout(layout, shape, self.mesh_shape)
        return ResolvedLayout(self.effective(layout), is_overridden=True)

    def effective(self, layout: TensorLayout) -> TensorLayout:
        """Without the mesh axes of size 1, which split nothing."""
        return TensorLayout(tuple(tuple(a for a in axes if a not in self._trivial) for axes in layout.axes))

    def _inherited_axes(self, overridden: Sequence[Tensor], dim: Dimension) -> Axes:
        carriers = [(x, self[x].axes[x.shape.axis(dim.name)]) for x in overridden if x.shape.has(dim.name)]
        for x, axes in carriers[1:]:
            first, first_axes = carriers[0]
            if axes != first_axes:
                raise LayoutError(
                    f'dimension "{dim.name}" is split over ({"+".join(first_axes)}) in {first!r}, made at '
                    f"{first.operation.site}, and over ({'+'.join(axes)}) in {x!r}, made at {x.operation.site}; both "
                    f"layouts were overridden: bring one to the other's with mtf.with_layout"
                )
        return carriers[0][1] if carriers else self._axes_by_name.get(dim.name, ())


def unused_rules(rules: LayoutRules, operations: Iterable[Operation], kind: str = "layout rule") -> list[str]:
    """A message for each rule whose dimension no tensor of the program has."""
    names = {d.name for operation in with_nested(operations) for t in operation.outputs for d in t.shape}
    return [
        f'{kind} "{rules.rule_text(name)}" has no effect: the program has no dimension "{name}"{nearest(name, names)}'
        for name, _ in rules.rules
        if name not in names
    ]


def _listed(operation: Operation) -> str:
    """An operation by its outputs; of a loop, which may have hundreds, by the first ones."""
    first = ", ".join(map(repr, operation.outputs[:MOST_LISTED]))
    more = len(operation.outputs) - MOST_LISTED
    return f"{first}, and {more} more" if more > 0 else first


def warn_unused_rules(rules: LayoutRules, parameter_rules: LayoutRules | None, operations: Sequence[Operation]) -> None:
    """Warns (LayoutWarning) of rules that have no effect, at the user's line that lowers the program."""
    site, messages = user_site(), unused_rules(rules, operations)
    if parameter_rules is not None:
        messages += unused_rules(parameter_rules, operations, "parameter layout rule")
    for message in messages:
        warnings.warn_explicit(message, LayoutWarning, site.filename, site.line)
