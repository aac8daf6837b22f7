"""Makes a plan from operations with layouts: lowers them one by one, and runs the passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from meshtf.errors import MeshtfError
from meshtf.graph.blocks import with_nested
from meshtf.graph.graph import Graph
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.lowering.passes import run_passes
from meshtf.lowering.passes.pass_options import DEFAULT_PASS_OPTIONS, PassOptions
from meshtf.ops.variables.variable import Assign, ReadVariable, Variable
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.pending_sums import PendingSums
from meshtf.planning.plan import Check, Plan
from meshtf.planning.planner import Planner
from meshtf.planning.stored_variables import Storage


def make_plan(
    layouts: LayoutTable,
    storage: Storage,
    effects: Sequence[Operation],
    fetches: Sequence[Tensor],
    seed: int = 0,
    options: PassOptions = DEFAULT_PASS_OPTIONS,
    *,
    finds_failures: bool = False,
    assigns: bool = True,
) -> Plan:
    """Plans the operations that the effects and the fetches need, in program order. It assigns only if there are
    effects, and if `assigns`.

    With `finds_failures`, the plan returns the places where its checks failed, after the fetches.
    """
    operations = needed([*effects, *(t.operation for t in fetches)])
    pending_sums = PendingSums(operations, fetches, layouts)
    planner = Planner(
        layouts,
        pending_sums,
        storage,
        seed,
        finds_failures=finds_failures,
        process_of_core=options.process_of_core,
    )
    for operation in operations:
        planner.lower(operation)
    trained = {v.full_name: v.shape for v in operations[0].graph.trainable_variables} if operations else {}
    return run_passes(
        planner.plan(fetches), dataclasses.replace(options, assigns=bool(effects) and assigns, trained=trained)
    )


def effects_with(check: Check, graph: Graph) -> list[Operation]:
    """The operations that a second program runs to find where a check failed: the check, or the loop or branch around
    it, and the assignments before it on which it depends.

    The failed step assigned nothing, so the same feeds lead to the same failure.
    """
    found = [o for o in graph.operations if check.operation in with_nested([o])]
    return [*found, *assignments_before(found)]


def assignments_before(roots: Sequence[Operation]) -> list[Operation]:
    """The assignments, and loops and branches that assign, on which `roots` depend without needing their results.

    They come before a `read_variable` of the same variable that the roots need.
    """
    found: list[Operation] = []
    while True:
        operations = needed([*roots, *found])
        more = _unneeded_assignments(operations)
        if not more:
            return found
        found += more


def _unneeded_assignments(operations: Sequence[Operation]) -> list[Operation]:
    """The operations that assign variables before these operations read them, except for these operations."""
    read_later: set[Variable] = set()
    found: list[Operation] = []
    own = set(operations)
    for operation in reversed(operations[0].graph.operations if operations else []):
        inside = with_nested([operation])
        if operation in own:
            read_later.update(o.variable for o in inside if isinstance(o, ReadVariable))
        elif any(isinstance(o, Assign) and o.variable in read_later for o in inside):
            found.append(operation)
    return found


def first_failure(check: Check, plan: Plan, found: Sequence[np.ndarray]) -> MeshtfError:
    """The error of a check that failed, with the first place of failure that a plan with findings returned."""
    findings = [c for c in plan.checks if c.finding is not None]
    own = [(int(x.min()), c) for c, x in zip(findings, found, strict=True) if c.operation is check.operation]
    place, finds = min(own, key=lambda pair: pair[0])
    return finds.failure(place)


def needed(roots: Sequence[Operation]) -> list[Operation]:
    """The operations that `roots` need, including `roots`, in program order."""
    if not roots:
        return []
    wanted = set(roots)
    for operation in reversed(roots[0].graph.operations):
        if operation in wanted:
            wanted.update(x.operation for x in operation.inputs)
            wanted.update(operation.dependencies)
    return [o for o in roots[0].graph.operations if o in wanted]
