"""Different optimizers for different variables."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.field_checks import check_kinds
from meshtf.optimize._name_patterns import check_patterns, check_patterns_match
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter


@dataclasses.dataclass(frozen=True)
class FrozenOptimizer(Optimizer):
    """Leaves every variable as it is.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> mtf.optimize.FrozenOptimizer().minimize(loss) == [w]
      True
    """

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        return [p.value for p in parameters]


@dataclasses.dataclass(frozen=True)
class ParameterGroups(Optimizer):
    """Updates each variable by one of several optimizers.

    Attributes:
      groups: pairs (regular expression, optimizer). The first pair whose expression matches a name updates it.
      default: updates the variables that no expression matches.

    Examples:
      >>> w = mtf.get_variable(mesh, "w", "hidden:8")
      >>> loss = mtf.reduce_sum(mtf.square(w))
      >>> groups = [("^w$", mtf.optimize.SgdOptimizer(0.1))]
      >>> mtf.optimize.ParameterGroups(groups, default=mtf.optimize.AdamOptimizer(1e-3)).minimize(loss)
      [assign [hidden:8] float32]
    """

    groups: Sequence[tuple[str, Optimizer]]
    default: Optimizer

    def __post_init__(self) -> None:
        check_kinds(self)
        check_patterns(self, "groups", [pattern for pattern, _ in self.groups])

    def update(self, parameters: Sequence[Parameter]) -> list[mtf.Tensor]:
        """The weights after one step, each from the optimizer of its group.

        Raises:
          GraphError: a group updates no variable of the program.
        """
        check_patterns_match(self, [pattern for pattern, _ in self.groups], parameters[0].variable.graph)
        self._check_are_reached([v.full_name for v in parameters[0].variable.graph.trainable_variables])
        updated: dict[Parameter, mtf.Tensor] = {}
        for number, optimizer in enumerate([*(optimizer for _, optimizer in self.groups), self.default]):
            own = [p for p in parameters if self._group_of(p.name) == number]
            updated.update(zip(own, optimizer.update(own) if own else [], strict=True))
        return [updated[p] for p in parameters]

    def _group_of(self, name: str) -> int:
        found = (i for i, (pattern, _) in enumerate(self.groups) if re.search(pattern, name))
        return next(found, len(self.groups))

    def _check_are_reached(self, names: Sequence[str]) -> None:
        taken = {self._group_of(name) for name in names}
        for number, (pattern, _) in enumerate(self.groups):
            if number not in taken:
                first = next(self.groups[self._group_of(name)][0] for name in names if re.search(pattern, name))
                raise GraphError(
                    f"ParameterGroups: earlier groups, such as {first!r}, take every variable that {pattern!r} finds; "
                    f"put the narrower expression first"
                )
