"""Remarks on a layout: possible improvements that its report shows, one line each."""

from __future__ import annotations

from meshtf.errors import counted
from meshtf.lowering.report.report import Report
from meshtf.lowering.report.text_table import bytes_text


def remarks(report: Report) -> list[str]:
    """Returns at most four lines, or none if there is nothing to remark."""
    found = []
    if gathered := report.gathers_for_want:
        sent = bytes_text(sum(c.bytes_sent for c in gathered)).strip()
        found.append(f"{sent} gathered for want of a way to work on slices ({counted(len(gathered), 'time')})")
    if report.whole_tensors:
        largest = report.whole_tensors[0]
        size = bytes_text(largest.bytes).strip()
        others = f"; {len(report.whole_tensors) - 1} more" if len(report.whole_tensors) > 1 else ""
        found.append(f"held whole by every core: {largest.name}, {size}, {largest.why}{others}")
    if report.repeated_updates:
        found.append(f"weights that every core updates whole: {len(report.repeated_updates)}")
    if report.padding:
        worst = max(report.padding, key=lambda p: p.share)
        found.append(f"padding: {worst.dimension}:{worst.size} in {worst.parts} parts, {worst.share:.1%}")
    return found
