"""A program run step by step on the eight cores of the virtual TPU, from values of its variables that are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hlo_collectives import collectives_of_hlo, collectives_of_plan

import meshtf as mtf
from meshtf.mesh_impl.slices import on_host
from meshtf.planning import core_positions
from meshtf.planning.plan import Plan


class XlaRun:
    """A program on a TpuMeshImpl.

    Attributes:
      plan: that it runs.
    """

    def __init__(
        self, lowering: mtf.Lowering, fetches: Sequence[mtf.Tensor], variables: Mapping[str, np.ndarray]
    ) -> None:
        self._lowering, self._fetches = lowering, list(fetches)
        execution = lowering.execution(self._fetches)
        self.plan: Plan = execution.plan
        for name, layout in execution.variable_layouts.items():
            variable = lowering.graph.variables[name]
            lowering.variables.create(variable, layout, lowering.device_mesh, lowering.axis_parts)  # type: ignore[arg-type]
            lowering.variables[name] = variables[name]

    @classmethod
    def of(cls, step: mtf.Function, variables: Mapping[str, np.ndarray]) -> XlaRun:
        return cls(step.lowering, step._fetches, variables)

    def __call__(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """One step. The fetches, whole; fails where cores disagree on a variable."""
        results = self._lowering.run(self._fetches, feeds)
        for name in self.plan.variable_names:
            self._check_cores_agree(name)
        return [np.asarray(x.numpy()) for x in results]

    def variable(self, name: str) -> np.ndarray:
        """Its present value, whole."""
        return self._lowering.variables[name]

    @property
    def slices(self) -> dict[str, list[np.ndarray]]:
        """Of each variable, by core."""
        store = self._lowering.variables
        return {n: [x.numpy() for x in store.slices(n).slices.values()] for n in self.plan.variable_names}

    def check_collectives(self) -> None:
        """Those of the HLO are those of the plan, and send the bytes that the report states."""
        found = collectives_of_hlo(self._lowering.hlo(self._fetches))
        assert found == collectives_of_plan(self.plan)
        reported = sum(c.bytes_sent // c.times for c in self._lowering.report(self._fetches).collectives)
        assert sum(op.bytes_sent * count for op, count in found.items()) == reported

    def _check_cores_agree(self, name: str) -> None:
        variable = self._lowering.variables.slices(name)
        first: dict[tuple[int, ...], np.ndarray] = {}
        for core, piece in variable.slices.items():
            block = core_positions.block(core, variable.layout.axes, variable.mesh_shape)
            expected = first.setdefault(block, on_host(piece))
            np.testing.assert_array_equal(on_host(piece), expected, f"core {core} disagrees on {name}")


def feeds_of(plan: Plan, given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """What is given for each input of a plan, or the value that it was imported with."""
    values = {f.name: given.get(f.name, getattr(f.operation, "value", None)) for f in plan.feeds}
    return {name: np.asarray(value) for name, value in values.items()}
