"""Shows the most memory that a core has held, as its device counts it, beside what the plans say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import meshtf as mtf
from meshtf.lowering.report.text_table import size_text


def say_peak_memory(say: Callable[[str], None], programs: Sequence[mtf.Function]) -> None:
    """Says one line if the device counts its memory. Virtual cores do not.

    By the plan a core holds the variables of all programs, which share them, and whatever else one program needs: the
    one that needs most.

    Args:
      say: prints a line.
      programs: the programs that ran, all on one mesh.
    """
    counted = programs[0].lowering.mesh_impl.peak_bytes
    if counted is None:
        return
    reports = [program.report() for program in programs]
    variables = {variable.name: variable.bytes_per_core for report in reports for variable in report.variables}
    planned = sum(variables.values()) + max(r.memory.peak - r.memory.variables for r in reports)
    say(f"peak memory:   {size_text(counted)} on a core by its own count, {size_text(planned)} by the plan")
