"""Lowers branches: each side converts its results to the layouts of the operation's outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshtf.control_flow._block_lowering import assigned_variables, constant_like, lower_operations
from meshtf.graph.blocks import Block
from meshtf.planning.open_check import OpenCheck
from meshtf.planning.pending_sums import block_sums, needed_inside
from meshtf.planning.plan import NOWHERE, Branch, Value
from meshtf.planning.planner import Planner

if TYPE_CHECKING:
    from meshtf.control_flow.cond import CondOperation


def lower_branch(operation: CondOperation, planner: Planner) -> None:
    """Adds a `Branch` to the plan."""
    predicate = planner.read(operation.inputs[0])
    variables = assigned_variables([o for block in operation.blocks for o in block.operations])
    before = {name: planner.variables.stored(variable) for name, variable in variables.items()}
    inners = [_side(operation, block, before, planner) for block in operation.blocks]
    # A variable that one side assigns is a result of both: the other side returns its old value.
    results = []
    for inner, block in zip(inners, operation.blocks, strict=True):
        own = [inner.read(t, planner.layouts[y], None) for t, y in zip(block.outputs, operation.outputs, strict=True)]
        results.append(own + [inner.variables.assigned.get(name, value) for name, value in before.items()])
    # A check of one side is also a result of both: on the other side it passes.
    checks = [check for inner in inners for check in inner.checks.open]
    for inner, own in zip(inners, results, strict=True):
        own.extend(v for c in checks for v in (c.values if c in inner.checks.open else _passed(c, inner)))
    values = [planner.record.value(v.shape, v.dtype, v.layout, v.pending) for v in results[0]]
    bodies = [inner.record.instructions for inner in inners]
    planner.record.add(Branch(operation, predicate, *bodies, *map(tuple, results), tuple(values)))  # type: ignore[arg-type]
    for output, value in zip(operation.outputs, values, strict=False):
        planner.write(output, value)
    # Results come in this order: the operation's outputs, variables, checks.
    rest = iter(values[len(operation.outputs) :])
    for name in before:
        planner.variables.assign(name, next(rest))
    for check in checks:
        planner.checks.add(check.outside([next(rest) for _ in check.values]))


def _passed(check: OpenCheck, side: Planner) -> list[Value]:
    """The values of a check on the side that lacks it: no failures, and no place of a failure."""
    return [constant_like(side, check.failures, 0), *(constant_like(side, f.value, NOWHERE) for f in check.findings)]


def _side(operation: CondOperation, block: Block, before: dict[str, Value], planner: Planner) -> Planner:
    inner = planner.inside(block_sums(block, block.outputs, planner.layouts))
    for outside, inside in [*((x, x) for x in operation.captures), *operation.given]:
        inner.tensors.give(inside, planner.read(outside, fill=None))
    for name, value in before.items():
        inner.variables.set_stored(name, value)
    lower_operations(needed_inside(block), operation, inner, planner)
    return inner
