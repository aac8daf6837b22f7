"""Optimizers, written with meshtf's own operations: their state is variables of the graph, and their updates are
assignments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshtf.errors import unknown_name
from meshtf.optimize.adafactor import AdafactorOptimizer
from meshtf.optimize.adam import AdamOptimizer, AdamWeightDecayOptimizer, AdamWOptimizer
from meshtf.optimize.clipping import ClipByGlobalNorm, ClipByValue, ClippedOptimizer, GradientTransformation
from meshtf.optimize.lion import LionOptimizer
from meshtf.optimize.low_precision import MasterWeightsOptimizer, StochasticRoundingOptimizer
from meshtf.optimize.moving_average import MovingAverageOptimizer, averaged
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.parameter import Parameter
from meshtf.optimize.parameter_groups import FrozenOptimizer, ParameterGroups
from meshtf.optimize.schedules.composed import OffsetSchedule, PiecewiseSchedule, ProductSchedule, WarmUpSchedule
from meshtf.optimize.schedules.decays import (
    CosineSchedule,
    InverseSquareRootSchedule,
    LinearSchedule,
    PolynomialSchedule,
)
from meshtf.optimize.schedules.published import NoamSchedule, SlantedTriangularSchedule
from meshtf.optimize.schedules.schedule import ConstantSchedule, Schedule
from meshtf.optimize.sgd import MomentumOptimizer, SgdOptimizer
from meshtf.optimize.sm3 import Sm3Optimizer
from meshtf.optimize.sparse_rows import SparseAdagradOptimizer, SparseAdamOptimizer, SparseSgdOptimizer
from meshtf.optimize.trust_ratio import LambOptimizer, LarsOptimizer
from meshtf.optimize.weight_decay import WeightDecayOptimizer

__all__ = [
    "AdafactorOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "AdamWeightDecayOptimizer",
    "ClipByGlobalNorm",
    "ClipByValue",
    "ClippedOptimizer",
    "ConstantSchedule",
    "CosineSchedule",
    "FrozenOptimizer",
    "GradientTransformation",
    "InverseSquareRootSchedule",
    "LambOptimizer",
    "LarsOptimizer",
    "LinearSchedule",
    "LionOptimizer",
    "MasterWeightsOptimizer",
    "MomentumOptimizer",
    "MovingAverageOptimizer",
    "NoamSchedule",
    "OffsetSchedule",
    "Optimizer",
    "Parameter",
    "ParameterGroups",
    "PiecewiseSchedule",
    "PolynomialSchedule",
    "ProductSchedule",
    "Schedule",
    "SgdOptimizer",
    "SlantedTriangularSchedule",
    "Sm3Optimizer",
    "SparseAdagradOptimizer",
    "SparseAdamOptimizer",
    "SparseSgdOptimizer",
    "StochasticRoundingOptimizer",
    "WarmUpSchedule",
    "WeightDecayOptimizer",
    "averaged",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__ = unknown_name(__name__, __all__)
