"""Removes assignments from a program that is only asked for values, so that it leaves every variable as it is.

For example, `lowering.export_to_tf_tensor(loss)` plans only what the loss needs. If the loss is computed from the
output of an assignment, the plan needs the new value, so it contains the assignment. The value stays and the assignment
goes.
"""

from __future__ import annotations

from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.planning.plan import Plan


def remove_unasked_assignments(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan without assignments, unless `options.assigns`. A fetch may be an assignment's output, or need
    one.
    """
    return plan if options.assigns else plan.without_assignments()
