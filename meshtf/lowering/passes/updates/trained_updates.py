"""Finds the instructions that lead to the updates of trained variables, in loops and branches too.

`early_updates` finds the same for all assigned variables, but only outside loops and branches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from meshtf.dimension import Shape
from meshtf.lowering.passes.updates.early_updates import is_part_of_update
from meshtf.planning.plan import Branch, Collective, Compute, Loop, Plan, Value, walk


def leading_to_updates(plan: Plan, trained: Mapping[str, Shape]) -> set[Compute | Collective]:
    """Returns the collectives and elementwise work that lead element by element to updates of trained variables.

    The updates are new values of the variables, and of state that belongs to one and has its shape. A norm or a mean
    over rows does not lead there element by element: its few numbers depend on many elements.

    Args:
      plan: a plan that is not fused or in buckets yet.
      trained: the shapes of the trained variables, by name.
    """
    values = [i.input for i in plan.assignments if _trained_shape(i.name, trained) == i.input.shape]
    return _leading_to(values, plan)


def _trained_shape(name: str, trained: Mapping[str, Shape]) -> Shape | None:
    return trained.get(name, trained.get(name.rpartition("/")[0]))


def _leading_to(values: Iterable[Value], plan: Plan) -> set[Compute | Collective]:
    """Returns the same as `leading_to_updates` for any values."""
    producers = {v: i for i, _ in walk(plan.instructions) for v in i.outputs}
    bound = dict(_bound(plan))
    found: set[Compute | Collective] = set()
    waiting, seen = list(values), set(values)
    while waiting:
        value = waiting.pop()
        before: Iterable[Value] = bound.get(value, ())
        producer = producers.get(value)
        if isinstance(producer, Compute | Collective) and is_part_of_update(producer):
            found.add(producer)
            before = _terms(producer)
        waiting.extend(v for v in before if v not in seen)
        seen.update(before)
    return found


def _terms(instruction: Compute | Collective) -> list[Value]:
    """Returns the moved value, or the operands with as many dimensions as the output. A norm has fewer and is
    left out.
    """
    if isinstance(instruction, Collective) or instruction.facts.kernel is None:
        return list(instruction.inputs[:1])
    rank = instruction.outputs[0].shape.ndims
    return [v for v in instruction.inputs if v.shape.ndims == rank]


def _bound(plan: Plan) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    """Yields the values that loops and branches pass on, each with the values that it may be."""
    for instruction, _ in walk(plan.instructions):
        if isinstance(instruction, Loop):
            for c in instruction.carried:
                yield c.result, (c.leaving, c.initial)
                yield c.entering, (c.leaving, c.initial)
            yield from ((s.part, (s.whole,)) for s in instruction.sliced)
            yield from ((s.whole, (s.part,)) for s in instruction.stacked)
        elif isinstance(instruction, Branch):
            sides = zip(instruction.true_results, instruction.false_results, strict=True)
            yield from zip(instruction.results, sides, strict=True)
