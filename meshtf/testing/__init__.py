"""For tests of programs written with meshtf, its own included.

`assert_layout_invariant` runs a function under many layouts on virtual CPUs. `plan` and `interpret` plan one for any
mesh, with no devices, and run it on the plain interpreter of plans. `legal_layouts` lists what layouts a program can
have.
"""

from meshtf.testing.interpret import Interpretation, build, interpret, interpret_graph, plan
from meshtf.testing.invariance import assert_layout_invariant
from meshtf.testing.legal_layouts import legal_layouts, shapes_of
from meshtf.testing.tolerances import TOLERANCES, assert_close

__all__ = [
    "TOLERANCES",
    "Interpretation",
    "assert_close",
    "assert_layout_invariant",
    "build",
    "interpret",
    "interpret_graph",
    "legal_layouts",
    "plan",
    "shapes_of",
]
