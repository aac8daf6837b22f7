"""Optimizers, written in the language alone: their state is variables of the graph, their updates assignments."""

from __future__ import annotations

from meshtf.optimize.adamw import AdamWOptimizer
from meshtf.optimize.optimizer import Optimizer
from meshtf.optimize.sgd import SgdOptimizer

__all__ = ["AdamWOptimizer", "Optimizer", "SgdOptimizer"]
