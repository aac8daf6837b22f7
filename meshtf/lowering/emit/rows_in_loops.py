"""Finds loops that replace rows of a carried value, as a step of an engine writes to a cache in each layer.

    carried pool: entering -> replaced rows -> leaving, which lookups of this iteration read

TensorFlow's kernel copies the pool in each iteration. If nothing else reads the entering pool, the loop may work in its
own memory: the pool is copied once before the first iteration, and then rows are written in place.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence

from meshtf.ops.indexing.gather import Lookup
from meshtf.ops.indexing.replaced_rows import ReplacedRows
from meshtf.planning.plan import Carried, Compute, Loop, Plan, Value, used_directly, walk
from meshtf.thresholds import ROWS_IN_PLACE_BYTES


def rows_in_loops(plan: Plan) -> tuple[frozenset[Compute], frozenset[Value]]:
    """Returns the replacements that may overwrite their input, and the values that enter their loops' iterations."""
    everything = [i for i, _ in walk(plan.instructions)]
    uses = collections.Counter(v for i in everything for v in used_directly(i))
    replacing: set[Compute] = set()
    entering: set[Value] = set()
    for loop in everything:
        if not isinstance(loop, Loop):
            continue
        for carried in loop.carried:
            found = _replacement(loop, carried, uses)
            if found is not None:
                replacing.add(found)
                entering.add(carried.entering)
    return frozenset(replacing), frozenset(entering)


def _replacement(loop: Loop, carried: Carried, uses: collections.Counter[Value]) -> Compute | None:
    """The replacement that makes the value carried on to the next iteration, if nothing else reads the entering
    value."""
    found = next((i for i in loop.body if carried.leaving in i.outputs), None)
    if not isinstance(found, Compute) or not isinstance(found.emit, ReplacedRows):
        return None
    if found.inputs[0] is not carried.entering or uses[carried.entering] != 1:
        return None
    if carried.leaving.slice_bytes < ROWS_IN_PLACE_BYTES:
        return None
    # The next iteration overwrites this value, so nothing may keep it or a view of it.
    reads = sum(_is_copying_lookup(i, carried.leaving) for i in _computes(loop))
    return found if uses[carried.leaving] == 1 + reads else None


def _computes(loop: Loop) -> Sequence[Compute]:
    return [i for i in loop.body if isinstance(i, Compute)]


def _is_copying_lookup(instruction: Compute, table: Value) -> bool:
    """Whether the instruction copies rows of the table. A single row may be a view of the table."""
    if not isinstance(instruction.emit, Lookup) or instruction.inputs[0] is not table:
        return False
    return math.prod(instruction.inputs[1].slice_shape) > 1 and table not in instruction.inputs[1:]
