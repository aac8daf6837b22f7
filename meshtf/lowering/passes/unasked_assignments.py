"""A program that is asked for values only leaves every variable as it is."""

from __future__ import annotations

from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.planning.plan import Plan


def remove_unasked_assignments(plan: Plan, options: PassOptions) -> Plan:
    """The plan without assignments, unless it is to assign: a fetch may be an assignment's output, or need one."""
    return plan if options.assigns else plan.without_assignments()
