"""The two extreme orders in which a core may execute a plan: with collectives as late, or as early, as possible.

Within a core TensorFlow runs whatever is ready. Collectives run one after the other, each when all its cores have come
to it. If collectives are slow, or one core is behind, the other cores go on with all work that needs no collective. If
they are fast, they end before the work that comes before them in the plan. `pacing` limits both.

For (gather w, use w, gather v, use v) the early extreme is (gather w, gather v, use w, use v), with both weights in
memory at once. For (g2, sum g2, g1, sum g1) the late extreme is (g2, g1, sum g2, sum g1), with both gradients. The
memory that a report names is the largest of the plan's own order and these two.
"""

from __future__ import annotations

import heapq
import itertools

from meshtf.planning.plan import Collective, Instruction, Plan, ReadVariable, walk


def collectives_late(plan: Plan) -> list[Instruction]:
    """Returns the instructions in an order in which a collective runs only when no other work can."""
    return _ordered(plan, collectives_first=False)


def collectives_early(plan: Plan) -> list[Instruction]:
    """Returns the instructions in an order in which other work runs only when no collective can."""
    return _ordered(plan, collectives_first=True)


def _ordered(plan: Plan, *, collectives_first: bool) -> list[Instruction]:
    """Returns one extreme order.

    Collectives, and loops with collectives inside, keep their order among themselves. So does other work, as far as its
    inputs allow.
    """
    instructions = plan.instructions
    number = {instruction: n for n, instruction in enumerate(instructions)}
    missing = _needed(plan)
    after: dict[Instruction, list[Instruction]] = {}
    for instruction, needed in missing.items():
        for producer in needed:
            after.setdefault(producer, []).append(instruction)
    local: list[int] = []
    meeting: list[int] = []

    def is_ready(instruction: Instruction) -> None:
        # Reading a variable costs nothing, and a collective that gathers it needs nothing else.
        comes_first = collectives_first and isinstance(instruction, ReadVariable)
        heapq.heappush(meeting if comes_first or _meets_others(instruction) else local, number[instruction])

    for instruction, needed in missing.items():
        if not needed:
            is_ready(instruction)
    order = []
    while local or meeting:
        done = instructions[heapq.heappop((meeting or local) if collectives_first else (local or meeting))]
        order.append(done)
        for following in after.get(done, ()):
            missing[following].discard(done)
            if not missing[following]:
                is_ready(following)
    return order


def _needed(plan: Plan) -> dict[Instruction, set[Instruction]]:
    """Returns, for each instruction, the instructions that must end before it starts."""
    instructions = plan.instructions
    producers = {v: i for i in instructions for v in i.outputs}
    needed = {i: {producers[v] for v in i.inputs if v in producers} for i in instructions}
    for instruction, awaited in plan.awaited.items():
        needed[instruction].add(awaited)
    meeting = [i for i in instructions if _meets_others(i)]
    # Cores that took part in the same collectives in different orders would wait for each other for ever.
    for before, instruction in itertools.pairwise(meeting):
        needed[instruction].add(before)
    return needed


def _meets_others(instruction: Instruction) -> bool:
    """Tells whether other cores take part in the instruction."""
    return any(isinstance(i, Collective) for i, _ in walk([instruction]))
