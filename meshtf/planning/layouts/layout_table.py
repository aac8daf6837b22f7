"""Finds and checks the layout of each tensor of a graph: from the rules, or inherited from overridden tensors.

Under the rules "batch:rows;hidden:cols", x [batch hidden] is split over rows and cols. Let the program say
`y = mtf.with_layout(x, "hidden:rows")`. Then `mtf.relu(y)` inherits y's layout, [batch hidden/rows]. In `y + bias`, the
overridden operand y decides, for all dimensions that it has.
"""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from meshtf.axis_parts import WHOLE_AXES, AxisParts
from meshtf.call_sites import user_site
from meshtf.dimension import Dimension, Shape
from meshtf.errors import LayoutError, LayoutWarning
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layer_scopes import ScopedName
from meshtf.layout import MAX_PADDING, Axes, LayoutRules, TensorLayout, check_mesh_axes, check_tensor_layout
from meshtf.planning.layouts.padding import uneven_dims, whole_in
from meshtf.planning.layouts.rules_by_place import RuleSet, places_of, unused_rules

MOST_LISTED = 3
"""Outputs of an operation that a message names."""


@dataclasses.dataclass(frozen=True, slots=True)
class ResolvedLayout:
    """A tensor's layout and its origin: an override, the rules, or the rules of a place."""

    layout: TensorLayout
    is_overridden: bool = False
    is_placed: bool = False


class LayoutTable:
    """The layout of every tensor of a graph on one mesh.

    Rules name the axes of the user's mesh. Layouts name the parts of an axis that is taken apart.
    max_padding: the largest share of a slice that may be padding, along a dimension that does not divide.
    """

    def __init__(
        self,
        mesh_shape: Shape,
        rules: LayoutRules | RuleSet,
        axis_parts: AxisParts = WHOLE_AXES,
        max_padding: float = MAX_PADDING,
    ) -> None:
        self.whole_mesh_shape = axis_parts.joined(mesh_shape)
        self.rule_set = rules if isinstance(rules, RuleSet) else RuleSet(rules)
        for own in self.rule_set.every:
            check_mesh_axes(own, axis_parts.named(self.whole_mesh_shape))
        self.mesh_shape = mesh_shape
        self.rules = self.rule_set.rules
        self._rules_in_parts = self.rule_set.map_axes(axis_parts.axes_taken_apart)
        self.axis_parts = axis_parts
        self.max_padding = max_padding
        self._resolving: Operation | None = None
        self._places: dict[tuple[LayoutRules, ScopedName], tuple[str, ...]] = {}
        self._trivial = {d.name for d in mesh_shape if d.size == 1}
        self._resolved: dict[Tensor, ResolvedLayout] = {}
        self._chosen: set[Tensor] = set()
        self._under_rules: dict[tuple[Shape, tuple[tuple[str, ...], ...]], ResolvedLayout] = {}
        self._has_padding = False
        self._whole_along: dict[frozenset[str], LayoutTable] = {}
        self.kept: dict[str, TensorLayout] = {}
        """The layouts in which a pass keeps variables between steps, keyed by the variables' names."""
        self.sums_of_blocks: dict[Any, Any] = {}
        """The results of `pending_sums.block_sums`, keyed by a block's operations and outputs."""

    def __contains__(self, tensor: Tensor) -> bool:
        return tensor in self._resolved

    def __getitem__(self, tensor: Tensor) -> TensorLayout:
        return self._resolved[tensor].layout

    def seen_by(self, operation: Operation | None) -> LayoutTable:
        """The layouts that an operation works in: dimensions that do not divide are whole if the operation needs them
        whole."""
        names = frozenset() if operation is None else frozenset(self._uneven_for(operation))
        return self._whole_along.setdefault(names, _WholeAlong(self, names)) if names else self

    def gathers_because(self, operation: Operation, axes: Axes) -> str:
        """Why an operation gathers over these mesh axes, if it lacks a way to work on slices; else empty."""
        if reason := operation.gathers_because(self):
            return reason
        uneven = [name for name, used in self._uneven_for(operation).items() if not used.isdisjoint(axes)]
        return f"slices that do not divide are worked on whole here ({', '.join(uneven)})" if uneven else ""

    def _uneven_for(self, operation: Operation) -> dict[str, set[str]]:
        """The mesh axes that split each dimension that does not divide and that the operation needs whole, by its
        name."""
        found: dict[str, set[str]] = {}
        if not self._has_padding or operation.takes_padding:  # almost every program and operation ends here
            return found
        for tensor in (*operation.inputs, *operation.outputs):
            layout = self[tensor]
            for i in uneven_dims(layout, tensor.shape, self.mesh_shape):
                if operation.needs_whole(tensor.shape[i].name):
                    found.setdefault(tensor.shape[i].name, set()).update(layout.axes[i])
        return found

    def resolved(self, tensor: Tensor) -> ResolvedLayout:
        """A tensor's layout. A tensor outside the program, whose layout another tensor copies, is laid out now."""
        if tensor not in self._resolved:
            for x in tensor.operation.inputs:
                self.resolved(x)
            self.resolve([tensor.operation])
        return self._resolved[tensor]

    def given(self, tensor: Tensor) -> ResolvedLayout:
        """The layout of a tensor that a block receives; see `give`."""
        return self._resolved[tensor]

    def resolve(self, operations: Iterable[Operation]) -> None:
        """Lays out the outputs of operations in program order.

        Raises:
          LayoutError: naming the tensor, the dimension, the sizes, the rule and the user's line.
        """
        for operation in operations:
            try:
                like = operation.like
                with self._at(operation):
                    layouts = operation.output_layouts(self) if like is None else [self.resolved(like)]
                for output, layout in zip(operation.outputs, layouts, strict=True):
                    self._resolved[output] = layout
                    self._note_padding(output, layout)
            except LayoutError as error:
                if "\n  in operation " in str(error):
                    raise  # the error names an operation inside a loop or a branch
                raise LayoutError(f"{error}\n  in operation {_listed(operation)}\n  at {operation.site}") from None

    def give(self, layouts: Mapping[Tensor, ResolvedLayout]) -> None:
        """Sets the layouts of tensors that a block receives."""
        self._resolved.update(layouts)
        for tensor, layout in layouts.items():
            self._note_padding(tensor, layout)

    def choose(self, layouts: Mapping[Tensor, ResolvedLayout]) -> None:
        """Replaces the layouts to which tensors were resolved. Passes change a program in this way."""
        self._resolved.update(layouts)
        self._chosen.update(layouts)
        for tensor, layout in layouts.items():
            self._note_padding(tensor, layout)
        self.sums_of_blocks.clear()

    def _note_padding(self, tensor: Tensor, resolved: ResolvedLayout) -> None:
        if not self._has_padding and uneven_dims(resolved.layout, tensor.shape, self.mesh_shape):
            self._has_padding = True

    def is_chosen(self, tensor: Tensor) -> bool:
        """Whether a pass gave the tensor its layout."""
        return tensor in self._chosen

    def under_rules(self, shape: Shape) -> ResolvedLayout:
        """The layout that the rules give a shape, at the place of the operation that is being laid out."""
        key = (shape, self._here(self.rule_set))
        resolved = self._under_rules.get(key)
        if resolved is None:
            resolved = ResolvedLayout(self._under(self._rules_in_parts, *key), is_placed=any(key[1]))
            self._under_rules[key] = resolved
        return resolved

    def under(self, rules: LayoutRules, x: Tensor) -> TensorLayout:
        """The layout that these rules give a variable's value; raises LayoutError if they do not fit it."""
        rule_set = self.rule_set.with_rules(rules)
        in_parts = rule_set.map_axes(self.axis_parts.axes_taken_apart)
        with self._at(x.operation):
            return self._under(in_parts, x.shape, self._here(rule_set))

    def inherited(self, inputs: Sequence[Tensor], shape: Shape) -> ResolvedLayout:
        """The layout of a result: each dimension has the split of the overridden operand that carries it, else the
        rules'.

        Parameters of a place keep their layout through an update.

        Raises:
          LayoutError: two overridden operands carry one dimension differently.
        """
        overridden = [x for x in inputs if self._resolved[x].is_overridden]
        if not overridden:
            return self._placed_parameter(inputs, shape) or self.under_rules(shape)
        # Dimensions of overridden operands are fixed first. Rules then fill the others, with the axes that are left.
        fixed = {d.name: axes for d in shape if (axes := self._inherited_axes(overridden, d)) is not None}
        by_name = self._rules_in_parts.axes(shape, self._here(self.rule_set), fixed)
        layout = TensorLayout(tuple(by_name[d.name] for d in shape))
        check_tensor_layout(layout, shape, self.mesh_shape, self.max_padding)
        return ResolvedLayout(self.effective(layout), is_overridden=True)

    def _under(self, rules: RuleSet, shape: Shape, places: tuple[tuple[str, ...], ...]) -> TensorLayout:
        by_name = rules.axes(shape, places)
        layout = TensorLayout(tuple(by_name[d.name] for d in shape))
        joined = self.axis_parts.layout_joined(layout)
        if all(self.whole_mesh_shape.has(axis) for axis in joined.used):  # the message then names axes as rules do
            check_tensor_layout(joined, shape, self.whole_mesh_shape, self.max_padding)
        else:
            check_tensor_layout(layout, shape, self.mesh_shape, self.max_padding)
        return self.effective(layout)

    @contextlib.contextmanager
    def _at(self, operation: Operation) -> Iterator[None]:
        """Makes `operation` the one that is being laid out, until the block ends."""
        around, self._resolving = self._resolving, operation
        try:
            yield
        finally:
            self._resolving = around

    def _here(self, rules: RuleSet) -> tuple[tuple[str, ...], ...]:
        """The places of the rules that contain the operation that is being laid out."""
        if self._resolving is None or not rules.has_places:
            return ((), ())
        scoped_name = self._resolving.scoped_name
        for own in rules.every:
            if (own, scoped_name) not in self._places:
                self._places[own, scoped_name] = places_of(own, scoped_name)
        return tuple(self._places[own, scoped_name] for own in rules.every)

    def _placed_parameter(self, inputs: Sequence[Tensor], shape: Shape) -> ResolvedLayout | None:
        if not self.rule_set.has_places or self.rule_set.is_activation(shape) or any(self._here(self.rule_set)):
            return None
        placed = (self._resolved[x] for x in inputs if x.shape == shape and self._resolved[x].is_placed)
        return next(placed, None)

    def effective(self, layout: TensorLayout) -> TensorLayout:
        """The layout without the mesh axes of size 1, which split nothing."""
        return TensorLayout(tuple(tuple(a for a in axes if a not in self._trivial) for axes in layout.axes))

    def _inherited_axes(self, overridden: Sequence[Tensor], dim: Dimension) -> Axes | None:
        """The axes that split the dimension in the operands whose layout was overridden; None where none has it."""
        carriers = [(x, self[x].axes[x.shape.axis(dim.name)]) for x in overridden if x.shape.has(dim.name)]
        for x, axes in carriers[1:]:
            first, first_axes = carriers[0]
            if axes != first_axes:
                raise LayoutError(
                    f'dimension "{dim.name}" is split over ({"+".join(first_axes)}) in {first!r}, made at '
                    f"{first.operation.site}, and over ({'+'.join(axes)}) in {x!r}, made at "
                    f"{x.operation.site}; both layouts were overridden: give both the same with mtf.with_layout"
                )
        return carriers[0][1] if carriers else None


class _WholeAlong(LayoutTable):
    """A table's layouts with some dimensions whole. It shares the table's state."""

    def __init__(self, table: LayoutTable, names: frozenset[str]) -> None:
        # Both tables share the same dictionaries, so a layout that one resolves is also in the other.
        vars(self).update(vars(table))
        self._names = names

    def __getitem__(self, tensor: Tensor) -> TensorLayout:
        layout = self._resolved[tensor].layout
        return whole_in(layout, [i for i, d in enumerate(tensor.shape) if d.name in self._names])


def _listed(operation: Operation) -> str:
    """The outputs of an operation as text. A loop may have hundreds, so only its first ones are listed."""
    first = ", ".join(map(repr, operation.outputs[:MOST_LISTED]))
    more = len(operation.outputs) - MOST_LISTED
    own = f"{first}, and {more} more" if more > 0 else first
    return own if operation.gradient_of is None else f"{own}, {operation.label}"


def warn_unused_rules(rules: Mapping[str, LayoutRules | None], operations: Sequence[Operation]) -> None:
    """Issues a LayoutWarning for each rule that has no effect, at the user's line that lowers the program. `rules` is
    keyed by the kind of rule, which the warning names."""
    site = user_site()
    for kind, own in rules.items():
        for message in unused_rules(own, operations, kind) if own is not None else []:
            warnings.warn_explicit(message, LayoutWarning, site.filename, site.line)
