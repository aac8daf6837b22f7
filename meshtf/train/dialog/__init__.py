"""LaMDA's recipe (Thoppilan et al. 2022): dialogs with labels, sample-and-rank, and tools."""

from __future__ import annotations

from meshtf.train.dialog.calculator import Calculator
from meshtf.train.dialog.dialog_model import DialogModel
from meshtf.train.dialog.dialog_sources import DialogText, LabelledDialogs, dialog_words
from meshtf.train.dialog.ranking import Candidate, SampleAndRank
from meshtf.train.dialog.retrieval import Retrieval
from meshtf.train.dialog.tool_loop import Answer, answered
from meshtf.train.dialog.tools import Tool, Toolset

__all__ = [
    "Answer",
    "Calculator",
    "Candidate",
    "DialogModel",
    "DialogText",
    "LabelledDialogs",
    "Retrieval",
    "SampleAndRank",
    "Tool",
    "Toolset",
    "answered",
    "dialog_words",
]
