"""Records which variable each operation of an update belongs to, so that reports can name the variable."""

from __future__ import annotations

from collections.abc import Sequence

import meshtf as mtf
from meshtf.optimize.parameter import Parameter


def name_updates(operations: Sequence[mtf.Operation], parameters: Sequence[Parameter]) -> None:
    """Sets `updates` on the operations that belong to the update of a single variable.

    Args:
      operations: all operations that an optimizer made, in program order.
      parameters: the variables that it updates.

    A variable's update reads its value, its state and its gradient. An operation that depends on two variables, such
    as a norm of all gradients, belongs to none.
    """
    labels = {p.name: p.variable.label for p in parameters}
    owners: dict[mtf.Tensor, frozenset[str]] = {p.grad: frozenset([p.name]) for p in parameters}
    names = set(labels)
    for operation in operations:
        owner = _owner_of_state(operation, names)
        for x in operation.inputs:
            owner |= owners.get(x, frozenset())
        owners.update(dict.fromkeys(operation.outputs, owner))
        if len(owner) == 1 and not isinstance(operation, mtf.Variable):
            operation.updates = labels[next(iter(owner))]


def _owner_of_state(operation: mtf.Operation, names: set[str]) -> frozenset[str]:
    """The name, if it is in `names`, of the variable that an operation reads or assigns, or whose state it does."""
    variable = operation if isinstance(operation, mtf.Variable) else getattr(operation, "variable", None)
    if not isinstance(variable, mtf.Variable):
        return frozenset()
    return frozenset({variable.full_name, variable.full_name.rpartition("/")[0]} & names)
