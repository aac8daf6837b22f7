"""A check whose result each core has only for itself, before a sum over the cores.

Each core counts how often the check failed there. That count is a term of a sum, which travels with other sums of the
program. So a check needs no collective of its own, and none in a loop: the counts of its iterations are added up first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.errors import MeshtfError
from meshtf.graph.operation import Operation
from meshtf.layout import Axes, TensorLayout, axes_size
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Check, Finding, OutputSpec, Value


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class OpenCheck:
    """How often a check failed on each core.

    Attributes:
      operation: the operation that checks.
      message: the fault if it fails.
      failures: float32 scalar, more than 0 where it failed; a sum over cores may be pending.
      error: the class of the error to raise.
      can_find: whether it says where it failed, in a plan that asks for it.
      finding: the place where it failed, in such a plan.
      advice: what the user can do, if there is something to say.
    """

    operation: Operation
    message: str
    failures: Value
    error: type[MeshtfError]
    can_find: bool = False
    finding: Finding | None = None
    advice: str = ""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The place where it failed, if the plan requests it; else empty."""
        return () if self.finding is None else (self.finding,)

    @property
    def values(self) -> tuple[Value, ...]:
        """The values that a block returns: the failures, and their places if the plan finds them."""
        return (self.failures, *(f.value for f in self.findings))

    def outside(self, values: Sequence[Value]) -> OpenCheck:
        """The same check outside the loop or branch in which it was made, with these `values`."""
        failures, *places = values
        findings = [dataclasses.replace(f, value=v) for f, v in zip(self.findings, places, strict=True)]
        return dataclasses.replace(self, failures=failures, finding=findings[0] if findings else None)

    def closed(self, failures: Value, compute: Callable[..., tuple[Value, ...]]) -> Check:
        """The check of the whole mesh, of which `failures` is the sum over all cores."""
        facts = WorkFacts(kernel=_is_zero)
        (flag,) = compute(
            "check", lambda core, x: _is_zero(x), [failures], [(Shape([]), tf.bool, TensorLayout(()))], facts=facts
        )
        return Check(self.operation, self.message, flag, self.error, self.can_find, self.finding, self.advice)


def failure_spec(axes: Axes) -> OutputSpec:
    """The spec of `failures`, if each of the cores along these mesh axes checks a part of its own."""
    return (Shape([]), tf.float32, TensorLayout(()), axes)


def place_spec(axes: Axes, mesh_shape: Shape) -> OutputSpec:
    """The spec of the places that the cores along these mesh axes have found, one for each core."""
    return (Shape([Dimension("cores", axes_size(axes, mesh_shape))]), tf.int64, TensorLayout((axes,)))


def failed_if(is_wrong: tf.Tensor) -> tf.Tensor:
    """Converts a bool scalar to a term of `failures`."""
    return tf.cast(is_wrong, tf.float32)


def _is_zero(x: tf.Tensor) -> tf.Tensor:
    return tf.equal(x, 0.0)
