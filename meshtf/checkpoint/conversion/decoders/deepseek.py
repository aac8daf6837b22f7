"""Readers of the configurations of DeepSeek-V2 and V3: layers with experts, groups of experts, the queries' scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from meshtf.checkpoint.conversion.configuration_readers import Configuration, Reader
from meshtf.checkpoint.conversion.decoders.readers import layer_kinds_by
from meshtf.errors import CheckpointError

_HEADS = """\
the configuration {where} has num_key_value_heads = {of_keys} and num_attention_heads = {heads}; each head has keys of \
its own, made from a latent: there is no such model"""
_HEAD_SIZE = """\
the configuration {where} has head_dim = {found}, and qk_rope_head_dim = {size}; Transformers rotates by \
head_dim, which would not fit the rest of the model: there is no such model"""
_NO_GROUPS = """\
the configuration {where} has topk_method = 'group_limited_greedy', n_group = {groups} and topk_group = {chosen}; both \
must be numbers of groups"""


def _kind_of(number: int, configuration: Configuration) -> str:
    dense = configuration.get("first_k_dense_replace")
    return "dense" if isinstance(dense, int) and number < dense else "sparse"


def _scaled(configuration: Configuration, where: str) -> dict[str, Any]:
    """Adds the queries' scale, in which `mscale_all_dim` counts twice, and checks the sizes of heads.

    It runs after the reader of rotary embeddings.
    """
    heads, of_keys = configuration.get("num_attention_heads"), configuration.get("num_key_value_heads")
    if of_keys is not None and of_keys != heads:
        raise CheckpointError(_HEADS.format(where=where, of_keys=of_keys, heads=heads))
    own, rotated = configuration.get("qk_nope_head_dim"), configuration.get("qk_rope_head_dim")
    if not isinstance(own, int) or not isinstance(rotated, int) or own + rotated < 1:
        return dict(configuration)
    scale, table = (own + rotated) ** -0.5, configuration.get("rope_parameters") or {}
    mscale, factor = table.get("mscale_all_dim"), table.get("factor")
    if table.get("rope_type") != "default" and mscale and isinstance(factor, int | float) and factor > 1:
        scale *= (0.1 * mscale * math.log(factor) + 1.0) ** 2
    return {**configuration, "query_scale": scale}


def _groups_of_v2(configuration: Configuration, where: str) -> dict[str, Any]:
    """Sets one group of experts, unless `topk_method` limits the choice to some of several groups."""
    if configuration.get("topk_method") != "group_limited_greedy":
        return {**configuration, "n_group": 1, "topk_group": 1}
    groups, chosen = configuration.get("n_group"), configuration.get("topk_group")
    if not isinstance(groups, int) or not isinstance(chosen, int):
        raise CheckpointError(_NO_GROUPS.format(where=where, groups=groups, chosen=chosen))
    return dict(configuration)


def _head_size(configuration: Configuration, where: str) -> dict[str, Any]:
    """Sets the size of the rotated part, for the readers of rotary embeddings. V3 may have no other `head_dim`."""
    found, size = configuration.get("head_dim"), configuration.get("qk_rope_head_dim")
    if configuration.get("model_type") == "deepseek_v3" and "head_dim" in configuration and found != size:
        raise CheckpointError(_HEAD_SIZE.format(where=where, found=found, size=size))
    return {**configuration, "head_dim": size}


def _in_turn(*reads: Callable[[Configuration, str], dict[str, Any]]) -> Callable[[Configuration, str], dict[str, Any]]:
    def read(configuration: Configuration, where: str) -> dict[str, Any]:
        found = dict(configuration)
        for each in reads:
            found = each(found, where)
        return found

    return read


_LAYERS = layer_kinds_by(_kind_of, None)
READERS: Mapping[str, Reader] = {
    "latent_scale": Reader(
        _scaled, ("num_key_value_heads", "qk_nope_head_dim", "qk_rope_head_dim", "rope_parameters.mscale_all_dim")
    ),
    "layers_of_deepseek2": Reader(
        _in_turn(_groups_of_v2, _head_size, _LAYERS),
        ("num_hidden_layers", "first_k_dense_replace", "topk_method", "n_group", "topk_group"),
    ),
    "layers_of_deepseek3": Reader(
        _in_turn(_head_size, _LAYERS), ("num_hidden_layers", "first_k_dense_replace", "head_dim")
    ),
}
