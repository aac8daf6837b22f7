"""Costs: the predicted seconds of a step on a machine, their parts, and memory over time.

They need nothing but a report and a description of the machine.
"""

from meshtf.costs.machine import Machine, NetworkLevel, TorusLinks
from meshtf.costs.machine_files import load_machine, machine_names, machine_text
from meshtf.costs.placement import Placement
from meshtf.costs.prediction import (
    CollectiveTime,
    Prediction,
    StepParts,
    predict,
)
from meshtf.costs.seconds import Work, collective_seconds, permute_seconds, seconds_of
from meshtf.costs.step_timing import OperationTime, operation_seconds, part_of_step
from meshtf.planning.local_work.work_facts import MatrixProduct

__all__ = [
    "CollectiveTime",
    "Machine",
    "MatrixProduct",
    "NetworkLevel",
    "OperationTime",
    "Placement",
    "Prediction",
    "StepParts",
    "TorusLinks",
    "Work",
    "collective_seconds",
    "load_machine",
    "machine_names",
    "machine_text",
    "operation_seconds",
    "part_of_step",
    "permute_seconds",
    "predict",
    "seconds_of",
]
