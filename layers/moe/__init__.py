"""Mixtures of experts as a sublayer of stacks: routers, capacity, dispatch.

Each token goes through a few of many feed-forward layers (the experts). In a group of 4 tokens with 2 experts and a
capacity of 2, a Switch router takes these steps:

    probabilities    t0 (.9 .1)  t1 (.2 .8)  t2 (.7 .3)  t3 (.6 .4)     one row per token (`Gates`)
    choices          t0 -> e0    t1 -> e1    t2 -> e0    t3 -> e0       the largest (`Choices`)
    slots            e0: t0 t2               e1: t1 -                   t3 finds no place: dropped (`Slots`)
    dispatch         rows of x in the order t0 t2 t1 and zeros          (`Dispatch.to_slots`)
    experts          e0 works on the first two rows, e1 on the others   (`ExpertLayers`)
    combine          y[t0] = .9 e0(t0), y[t1] = .8 e1(t1), y[t2] = .7 e0(t2), y[t3] = 0

Groups are split as the batch is, and experts by their own rule. Between dispatch and experts the split moves from the
groups to the experts, by an alltoall.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshtf.errors import unknown_name
from meshtf.layers.moe.capacity import Capacity
from meshtf.layers.moe.dispatch import Dispatch, GatherDispatch, ProductDispatch
from meshtf.layers.moe.gates import Gates
from meshtf.layers.moe.group_limited_router import GroupLimitedRouter
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
    "GroupLimitedRouter",
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

if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__ = unknown_name(__name__, __all__)
