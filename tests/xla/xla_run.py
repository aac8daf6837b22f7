"""A program for a TPU, executed on eight replicas step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from core_slices import cut, joined
from eight_cores import CORES, CompiledHlo

import meshtf as mtf
from meshtf.planning.plan import Feed, Plan, ReadVariable, Value


class XlaRun:
    """A plan's HLO with the slices of its variables, which every call assigns.

    Attributes:
      slices: of each variable, by core. failed_check: the index of the last step's, or -1.
    """

    def __init__(self, plan: Plan, hlo: bytes, variables: Mapping[str, np.ndarray]) -> None:
        self.plan = plan
        self.compiled = CompiledHlo(hlo)
        self.failed_check = -1
        self._sizes = {name: variables[name].shape for name in plan.variable_names}
        self._values = _kept(plan)
        self.slices = {n: cut(variables[n], self._values[n], plan.mesh_shape) for n in plan.variable_names}

    @classmethod
    def of(cls, lowering: mtf.Lowering, fetches: Sequence[mtf.Tensor], variables: Mapping[str, np.ndarray]) -> XlaRun:
        """The program that returns these tensors, from these values of its variables."""
        return cls(lowering.execution(fetches).plan, lowering.hlo(fetches), variables)

    def __call__(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """One step. The fetches, whole; fails where cores disagree."""
        plan, names = self.plan, self.plan.variable_names
        given = [[fed(f, feeds)] * CORES for f in plan.feeds]
        results = self.compiled.run([*given, *(self.slices[n] for n in names)])
        for result, parameter in self.compiled.aliases.items():
            self.slices[names[parameter - len(given)]] = results[result]
        self.failed_check = int(results[len(plan.fetches)][0])
        fetched = zip(results, plan.fetches, strict=False)
        return [joined(slices, v, plan.mesh_shape, v.shape.to_integer_list) for slices, v in fetched]

    def variable(self, name: str) -> np.ndarray:
        """Its present value, whole."""
        return joined(self.slices[name], self._values[name], self.plan.mesh_shape, self._sizes[name])


def fed(feed: Feed, feeds: Mapping[str, Any]) -> np.ndarray:
    """What is given for an input, or the value that it was imported with."""
    value = feeds.get(feed.name)
    return np.asarray(feed.operation.value if value is None else value)  # type: ignore[attr-defined]


def _kept(plan: Plan) -> dict[str, Value]:
    accesses: Sequence[Any] = [*plan.assignments, *plan.reads]
    return {i.name: i.output if isinstance(i, ReadVariable) else i.input for i in accesses}
