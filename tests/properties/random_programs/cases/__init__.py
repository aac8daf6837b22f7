"""What random programs are made of: one case for each operation, and cases made of many."""

from __future__ import annotations

from tests.properties.random_programs.cases import (
    attention,
    contraction,
    control_flow,
    elementwise,
    escape,
    experts,
    function_families,
    layer_stacks,
    neighbours,
    nested,
    patterns,
    pieces,
    row_groups,
    scatter,
    sequence,
    sources,
    statistics,
    transforms,
    window_gradients,
)
from tests.properties.random_programs.cases.elementwise import Case

CASES: dict[str, Case] = {
    **elementwise.CASES,
    **contraction.CASES,
    **neighbours.CASES,
    **pieces.CASES,
    **scatter.CASES,
    **sequence.CASES,
    **sources.CASES,
    **escape.CASES,
    **control_flow.CASES,
    **transforms.CASES,
    **row_groups.CASES,
    **function_families.CASES,
    **statistics.CASES,
    **patterns.CASES,
}
"""Of single operations."""

COMPOUND_CASES: dict[str, Case] = {
    **nested.CASES,
    **layer_stacks.CASES,
    **attention.CASES,
    **experts.CASES,
    **window_gradients.CASES,
}
"""Of many operations that have cases of their own too."""

EVERY_CASE = {**CASES, **COMPOUND_CASES}
