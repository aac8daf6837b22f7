"""Answers questions about a program: how a tensor is laid out, and why; how two layouts differ; what a value is."""

from meshtf.debug.compare_layouts import ComparedTensor, LayoutComparison, compare_layouts
from meshtf.debug.layout_reasons import DimensionReason
from meshtf.debug.show import show
from meshtf.debug.watch import Watched, watch
from meshtf.debug.why import SentFor, Why, why

__all__ = [
    "ComparedTensor",
    "DimensionReason",
    "LayoutComparison",
    "SentFor",
    "Watched",
    "Why",
    "compare_layouts",
    "show",
    "watch",
    "why",
]
