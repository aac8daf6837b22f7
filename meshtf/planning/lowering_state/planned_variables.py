"""The present values of variables while a program is lowered."""

from __future__ import annotations

from collections.abc import Mapping

from meshtf.graph.operation import Operation
from meshtf.layout import TensorLayout
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.plan import AssignVariable, ReadVariable, Value
from meshtf.planning.plan_record import PlanRecord
from meshtf.planning.stored_variables import Storage, StoredVariable


class PlannedVariables:
    """The present value of each variable: its last assigned value. Slices are stored once, when the program ends.

    Args:
      storage: decides the layout in which each variable is kept.
      layouts: the layouts of all tensors.
      record: the record of the program or the block.
      outside: the variables of the enclosing block or program; None for the program itself.
    """

    def __init__(
        self, storage: Storage, layouts: LayoutTable, record: PlanRecord, outside: PlannedVariables | None = None
    ) -> None:
        self._storage = storage
        self._table = layouts
        self._record = record
        self._outside = outside
        self._present: dict[str, Value] = {}
        self._assigned: dict[str, tuple[Operation, Value]] = {}

    def layout(self, variable: StoredVariable) -> TensorLayout:
        """The layout in which a variable is kept between steps."""
        return self._storage.layout(variable, self._table)

    def stored(self, variable: StoredVariable) -> Value:
        """The variable's present value: its last assigned value, or its value when the program started."""
        name = variable.full_name
        if name not in self._present and self._outside is not None:
            self._present[name] = self._outside.stored(variable)
        if name not in self._present:
            value = self._record.value(variable.shape, variable.slice_dtype, self.layout(variable))
            self._record.add(ReadVariable(self._record.operation, name, value))
            self._present[name] = value
        return self._present[name]

    def set_stored(self, name: str, value: Value) -> None:
        """Makes `value` the variable's present value without an assignment."""
        self._present[name] = value

    def assign(self, name: str, value: Value) -> None:
        """Makes `value` the variable's present value; it is stored once, when the program ends."""
        self._present[name] = value
        self._assigned.pop(name, None)
        self._assigned[name] = (self._record.operation, value)

    @property
    def assigned(self) -> Mapping[str, Value]:
        """New values of variables, by name."""
        return {name: value for name, (_, value) in self._assigned.items()}

    def store(self) -> None:
        """Adds the instructions that end a program: each variable's last value is stored."""
        for name, (operation, value) in self._assigned.items():
            self._record.add(AssignVariable(operation, name, value))
