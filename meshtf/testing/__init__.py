"""Tools to test programs written with meshtf. meshtf's own tests also use them.

`assert_layout_invariant` runs a function under many layouts on virtual CPUs. `plan` plans a function for any mesh,
without devices. `interpret` also runs it, on the plain interpreter of plans. `legal_layouts` lists the layouts that a
program can have.

`assert_close` compares arrays, up to rounding errors. The tolerance is `rounding_bound`, computed from the dtype, the
number of terms (`terms_of` counts the terms of a plan) and the size of the values (`largest`).
"""

from typing import TYPE_CHECKING

from meshtf.errors import unknown_name
from meshtf.testing.closeness import assert_close, largest
from meshtf.testing.interpret import Interpretation, build, interpret, interpret_graph, plan
from meshtf.testing.invariance import assert_layout_invariant
from meshtf.testing.legal_layouts import legal_layouts, shapes_of
from meshtf.testing.rounding import FUNCTION_TERMS, rounding_bound, unit_roundoff
from meshtf.testing.terms import terms_of

__all__ = [
    "FUNCTION_TERMS",
    "Interpretation",
    "assert_close",
    "assert_layout_invariant",
    "build",
    "interpret",
    "interpret_graph",
    "largest",
    "legal_layouts",
    "plan",
    "rounding_bound",
    "shapes_of",
    "terms_of",
    "unit_roundoff",
]

if not TYPE_CHECKING:  # a type checker would accept every name
    __getattr__ = unknown_name(__name__, __all__)
