"""Mixtures of experts as a sublayer of stacks: routers, capacity, dispatch."""

from __future__ import annotations

from meshtf.errors import unknown_name
from meshtf.layers.moe.capacity import Capacity
from meshtf.layers.moe.dispatch import Dispatch, GatherDispatch, ProductDispatch
from meshtf.layers.moe.gates import Gates
from meshtf.layers.moe.mixture_of_experts import MixtureOfExperts, mixture_of_experts
from meshtf.layers.moe.routers import ExpertChoiceRouter, Router, SwitchRouter, Top2Router, TopNRouter
from meshtf.layers.moe.routing import balance_loss
from meshtf.layers.moe.token_groups import TokenGroups

__all__ = [
    "Capacity",
    "Dispatch",
    "ExpertChoiceRouter",
    "Gates",
    "GatherDispatch",
    "MixtureOfExperts",
    "ProductDispatch",
    "Router",
    "SwitchRouter",
    "TokenGroups",
    "Top2Router",
    "TopNRouter",
    "balance_loss",
    "mixture_of_experts",
]

__getattr__ = unknown_name(__name__, __all__)
