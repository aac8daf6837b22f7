"""How many roundings lie behind the results of a random program."""

from __future__ import annotations

import tensorflow as tf

from meshtf.testing import FUNCTION_TERMS, rounding_bound, unit_roundoff
from tests.properties.random_programs.program import Program, Step

_NARROW = (tf.float16, tf.bfloat16)


def least_precise(program: Program) -> tf.DType:
    """Of the dtypes of its numbers that are rounded; float64 where none is."""
    return max(filter(unit_roundoff, program.dtypes), key=unit_roundoff, default=tf.float64)


def terms_of(program: Program) -> int:
    """Roundings through all steps and back: of narrow types one each, or one for each factor of a product, else of a
    function and a sum over what goes in for each element that comes out.

    A loop adds those of its body in every turn, since the next one begins with what this one has rounded. What turns
    only add to a sum is none of it: such sums are of wide numbers, as one product's.
    """
    is_narrow = least_precise(program) in _NARROW
    return 2 * sum(
        max(1, step.turns) * (max(1, step.factors) if is_narrow else FUNCTION_TERMS + _summed(step))
        for step in program.steps
    )


def shows_mistakes(program: Program) -> bool:
    """Whether so many roundings leave a bound that is narrow enough to see one."""
    try:
        rounding_bound(least_precise(program), terms_of(program))
    except ValueError:
        return False
    return True


def _summed(step: Step) -> int:
    """Elements that go in, for each that comes out. In a loop no turn reads more."""
    return sum(x.shape.size for x in step.inputs) // max(1, min((y.shape.size for y in step.outputs), default=1))
