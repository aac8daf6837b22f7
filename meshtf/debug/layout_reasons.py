"""The reason for a tensor's layout: a rule, an override of it or of an operand, its primal, or a pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from meshtf.dimension import Dimension
from meshtf.graph.tensor import Tensor
from meshtf.layout import Axes, LayoutRules
from meshtf.ops.rearranging.with_layout import WithLayoutOperation
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.layouts.rules_by_place import places_of


@dataclasses.dataclass(frozen=True, slots=True)
class DimensionReason:
    """The mesh axes that split a dimension, and the reason.

    Attributes:
      dimension: the dimension, such as `batch:64`.
      axes: the mesh axes; none if it is whole on every core.
      why: the reason, in words.
    """

    dimension: str
    axes: Axes
    why: str


def layout_reasons(x: Tensor, table: LayoutTable) -> tuple[DimensionReason, ...]:
    """Returns the reason for each dimension of a tensor, in order."""
    layout = table.axis_parts.layout_joined(table.resolved(x).layout)
    return tuple(
        DimensionReason(str(dim), axes, _reason(x, dim, axes, table))
        for dim, axes in zip(x.shape, layout.axes, strict=True)
    )


def _reason(x: Tensor, dim: Dimension, axes: Axes, table: LayoutTable) -> str:
    operation = x.operation
    if table.is_chosen(x):
        return "a pass chose it, so that the cores divide the update of a weight"
    if operation.like is not None:
        return f"as in {operation.like.name}, whose gradient it is"
    if isinstance(operation, WithLayoutOperation):
        return _of_override(operation, dim, axes, table)
    if table.resolved(x).is_overridden:
        carriers = [y for y in operation.inputs if table.resolved(y).is_overridden and y.shape.has(dim.name)]
        if carriers:
            return f"as in operand {carriers[0].name}: {_reason(carriers[0], dim, axes, table)}"
    return _of_rules(x, dim, axes, table)


def _of_override(operation: WithLayoutOperation, dim: Dimension, axes: Axes, table: LayoutTable) -> str:
    (operand,) = operation.inputs
    rules = operation.override
    if rules is None:
        return _of_rules(operation.outputs[0], dim, axes, table)
    if not rules.rules:
        return f"mtf.replicate, at {operation.site.place}"
    call = f'mtf.with_layout(x, "{rules}"), at {operation.site.place}'
    if dim.name in dict(rules.rules):
        return call
    own = table.axis_parts.layout_joined(table.resolved(operand).layout).axes[operand.shape.axis(dim.name)]
    if own != axes:
        return f"{call}, takes {'+'.join(a for a in own if a not in axes)} from it"
    return f"as in operand {operand.name}: {_reason(operand, dim, axes, table)}"


def _of_rules(x: Tensor, dim: Dimension, axes: Axes, table: LayoutTable) -> str:
    found = _rules_for(x, dim, table)
    if not found:
        return "no rule is for it"
    text, ruled = found[-1]
    if ruled == axes:
        return text
    sizes = {d.name: d.size for d in table.axis_parts.named(table.whole_mesh_shape)}
    lost = [a for a in ruled if a not in axes]
    if all(sizes.get(a, 1) == 1 for a in lost):
        return f"{text}, but mesh axis {', '.join(lost)} has size 1"
    return f"{text}, but {', '.join(lost)} splits another dimension here"


def _rules_for(x: Tensor, dim: Dimension, table: LayoutTable) -> list[tuple[str, Axes]]:
    """Returns the rules for a dimension, in words, each with its axes. The last one counts."""
    rule_set, found = table.rule_set, []
    kinds: Sequence[tuple[str, LayoutRules]] = [("rule", rule_set.rules)]
    if rule_set.is_activation(x.shape):
        kinds = [*kinds, ("activation rule", rule_set.activations)]
    for kind, rules in kinds:
        if dim.name in dict(rules.rules):
            found.append((f'{kind} "{rules.rule_text(dim.name)}"', rules.axes(dim.name)))
    for kind, rules in kinds:
        names = places_of(rules, x.operation.scoped_name)
        for place, own in rules.places:
            if place in names and dim.name in dict(own.rules):
                found.append((f'{kind} "{place}{{{own.rule_text(dim.name)}}}"', own.axes(dim.name)))
    return found
