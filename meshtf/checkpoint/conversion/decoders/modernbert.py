"""Readers of the configuration of ModernBERT, an encoder with layers of several kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshtf.checkpoint.conversion.configuration_readers import Configuration, Reader
from meshtf.checkpoint.conversion.decoders.readers import (
    FULL,
    ROTARY_BESIDE,
    SLIDING,
    layer_kinds_by,
    scaled_table,
    table_of,
)

_FIRST = "first {}"
_BASES = {FULL: ("global_rope_theta", 160000.0), SLIDING: ("local_rope_theta", 10000.0)}
_ROTARY_KEYS = ("max_position_embeddings", "global_rope_theta", "local_rope_theta")


def _rotary(configuration: Configuration, where: str) -> dict[str, Any]:
    """Reads the tables of rotary embeddings, one for each kind of layer.

    `rope_scaling` applies to both kinds. Without another table, its `rope_type` counts and its `type` is ignored.
    """
    given = table_of(configuration.get("rope_parameters"), where)
    tables: dict[str, Any] = {}
    for kind, (key, default) in _BASES.items():
        table = dict(table_of(given.get(kind), where)) or {"rope_type": "default"}
        table |= table_of(configuration.get("rope_scaling"), where)
        table.setdefault("rope_theta", configuration.get(key, default))
        table.setdefault("rope_type", table.get("type", "default"))
        tables[kind] = scaled_table({**configuration, "rope_parameters": table}, kind, where)
    beside = ("rope_scaling", *(key for key, _ in _BASES.values()))
    return {**{k: v for k, v in configuration.items() if k not in beside}, "rope_parameters": tables}


def _layers(configuration: Configuration, where: str) -> dict[str, Any]:
    """Adds the kind of each layer. The first layer is of its own kind, because it has no norm before its attention.

    In layers with a window, a token sees `local_attention` // 2 others on each side.
    """
    reach = configuration.get("local_attention")
    window = reach // 2 if isinstance(reach, int) else None
    found = layer_kinds_by(_kind_of)({**configuration, "sliding_window": window}, where)
    kinds = [_FIRST.format(kind) if not number else kind for number, kind in enumerate(found.get("layer_kinds", []))]
    own = {key: value for key, value in found.items() if key != "sliding_window" or key in configuration}
    return {**own, "layer_kinds": kinds, "window": None if window is None else window + 1}


def _kind_of(number: int, configuration: Configuration) -> str:
    period = configuration.get("global_attn_every_n_layers")
    return SLIDING if isinstance(period, int) and period > 0 and number % period else FULL


READERS: Mapping[str, Reader] = {
    "rotary_of_modernbert": Reader(
        _rotary,
        (*_ROTARY_KEYS, *(f"rope_parameters.{kind}" for kind in _BASES), *ROTARY_BESIDE),
        {"rope_scaling": "rope_parameters"},
    ),
    "layers_of_modernbert": Reader(
        _layers, ("num_hidden_layers", "layer_types", "global_attn_every_n_layers", "local_attention")
    ),
}
