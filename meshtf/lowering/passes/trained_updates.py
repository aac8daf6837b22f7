"""Which instructions, inside loops and branches too, lead to the updates of trained variables.

`early_updates` asks the same of a program's own instructions, for whatever is assigned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from meshtf.dimension import Shape
from meshtf.lowering.passes.early_updates import is_part_of_update
from meshtf.planning.plan import Branch, Collective, Compute, Loop, Plan, Value, walk


def leading_to_updates(plan: Plan, trained: Mapping[str, Shape]) -> set[Compute | Collective]:
    """Collectives and elementwise work from which updates of trained variables follow element by element.

    That is: new values of variables, and of state that belongs to one and has its shape. What is made of elements and
    of fewer numbers, such as a norm or a mean over rows, follows from the elements.

    Args:
      plan: not yet fused, nor in buckets.
      trained: the shapes of the variables that are trained, by name.
    """
    values = [i.input for i in plan.assignments if _trained_shape(i.name, trained) == i.input.shape]
    return _leading_to(values, plan)


def _trained_shape(name: str, trained: Mapping[str, Shape]) -> Shape | None:
    return trained.get(name, trained.get(name.rpartition("/")[0]))


def _leading_to(values: Iterable[Value], plan: Plan) -> set[Compute | Collective]:
    """As `leading_to_updates`, of any values; inside loops and branches, too."""
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
    """What is moved, or the operands of as many dimensions as the output: no factor of many elements, as a norm is."""
    if isinstance(instruction, Collective) or instruction.facts.kernel is None:
        return list(instruction.inputs[:1])
    rank = instruction.outputs[0].shape.ndims
    return [v for v in instruction.inputs if v.shape.ndims == rank]


def _bound(plan: Plan) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    """Values that loops and branches pass on, and what they are."""
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
