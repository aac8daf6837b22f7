"""What the configuration classes of decoders in Transformers 5 make of their keys, with layers of several kinds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from meshtf.checkpoint.conversion.configuration_readers import Configuration, Reader
from meshtf.errors import CheckpointError

_COUNT = """\
the configuration {where} has {count} entries of {key} for {num_layers} layers; Transformers refuses it, too"""
_TOO_MANY = """\
the configuration {where} has num_hidden_layers = {count:,}, and no model has more than {most:,}; it was changed"""
_NO_WINDOW = """\
the configuration {where} has layers that see a window, and does not say how wide it is, in sliding_window"""
_MOST_LAYERS = 100_000
_SLIDING, _FULL = "sliding_attention", "full_attention"

KindOf = Callable[[int, Configuration], str]
"""The kind of a layer, by its number."""


def _attention_factor(configuration: Configuration, where: str) -> dict[str, Any]:
    """Fills in `attention_factor` of yarn and longrope, with which Transformers multiplies cosines and sines."""
    del where
    table = configuration.get("rope_parameters")
    if not isinstance(table, Mapping) or table.get("rope_type") not in ("yarn", "longrope"):
        return dict(configuration)
    table, length = dict(table), configuration.get("max_position_embeddings")
    original = table.get("original_max_position_embeddings")
    if table.get("factor") is None and _are_sizes(length, original):
        table["factor"] = length / original
    if table.get("attention_factor") is None and _are_sizes(table.get("factor"), original):
        table["attention_factor"] = _of_yarn(table) if table["rope_type"] == "yarn" else _of_longrope(table)
    if "truncate" in table:
        table["truncate"] = bool(table["truncate"])
    return {**configuration, "rope_parameters": table}


def _of_yarn(table: Mapping[str, Any]) -> float:
    def scale(mscale: float) -> float:
        return 0.1 * mscale * math.log(table["factor"]) + 1.0 if table["factor"] > 1 else 1.0

    mscale, of_all = table.get("mscale"), table.get("mscale_all_dim")
    return scale(mscale) / scale(of_all) if _are_sizes(mscale, of_all) else scale(1.0)


def _of_longrope(table: Mapping[str, Any]) -> float:
    factor, original = table["factor"], table["original_max_position_embeddings"]
    return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 and original > 1 else 1.0


def _are_sizes(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values)


def _layer_kinds(kind_of: KindOf, key: str | None = "layer_types") -> Callable[[Configuration, str], dict[str, Any]]:
    """Adds `layer_kinds`, the kind of each layer: what a key says, or else a rule."""

    def read(configuration: Configuration, where: str) -> dict[str, Any]:
        count, kinds = configuration.get("num_hidden_layers"), configuration.get(key or "")
        if not isinstance(count, int) or isinstance(count, bool):
            return dict(configuration)
        if count > _MOST_LAYERS:
            raise CheckpointError(_TOO_MANY.format(where=where, count=count, most=_MOST_LAYERS))
        if not isinstance(kinds, list):
            kinds = [kind_of(number, configuration) for number in range(count)]
        if len(kinds) != count:
            raise CheckpointError(_COUNT.format(where=where, count=len(kinds), key=key, num_layers=count))
        sees_window = _SLIDING in kinds
        if sees_window and configuration.get("sliding_window") is None:
            raise CheckpointError(_NO_WINDOW.format(where=where))
        return {**configuration, "layer_kinds": kinds, "sees_window": sees_window}

    return read


def _qwen_window(configuration: Configuration, where: str) -> dict[str, Any]:
    """Without `use_sliding_window`, `sliding_window` says nothing."""
    del where
    return {**configuration, **({} if configuration.get("use_sliding_window") else {"sliding_window": None})}


def _alike(number: int, configuration: Configuration) -> str:
    return "layer"


def _every(period: int, key: str = "") -> KindOf:
    """Every so many layers, by a key or a number, one that sees everything."""

    def kind(number: int, configuration: Configuration) -> str:
        found = configuration.get(key)
        found = found if isinstance(found, int) and found > 0 else period
        return _SLIDING if (number + 1) % found else _FULL

    return kind


def _behind_full_ones(number: int, configuration: Configuration) -> str:
    """As Qwen: layers from `max_window_layers` on see a window, if any does."""
    first = configuration.get("max_window_layers")
    has_window = configuration.get("sliding_window") is not None
    return _SLIDING if has_window and isinstance(first, int) and number >= first else _FULL


def _sparse(number: int, configuration: Configuration) -> str:
    """As Qwen3-MoE: experts in every `decoder_sparse_step`-th layer, but for `mlp_only_layers`."""
    step, dense = configuration.get("decoder_sparse_step"), configuration.get("mlp_only_layers")
    is_sparse = isinstance(step, int) and step > 0 and (number + 1) % step == 0
    return "sparse" if is_sparse and number not in (dense if isinstance(dense, list) else []) else "dense"


def _rotary_by_layer(configuration: Configuration, where: str) -> dict[str, Any]:
    """As Gemma 3: a table of rotary embeddings for each kind of attention, `rope_parameters.full_attention`, of which
    `rope_scaling` is a part; what `rope_parameters` has beside them says nothing."""
    given = configuration.get("rope_parameters")
    tables = {kind: dict(_table(given, where).get(kind) or {}) for kind in (_FULL, _SLIDING)}
    tables[_FULL] |= _table(configuration.get("rope_scaling"), where)
    bases = {_FULL: ("rope_theta", 1e6), _SLIDING: ("rope_local_base_freq", 1e4)}
    for kind, table in tables.items():
        key, default = bases[kind]
        table.setdefault("rope_theta", configuration.get(key, default))
        table.setdefault("rope_type", table.get("type", "default"))
        if odd := sorted(set(table) - {"rope_theta", "rope_type", "type", "factor"}):
            raise CheckpointError(
                f"the configuration {where} has {odd[0]} = {table[odd[0]]!r} among the rotary embeddings of {kind}, of "
                "which these rules know nothing: there is no such model here"
            )
    beside = ("rope_scaling", "rope_theta", "rope_local_base_freq")
    return {**{k: v for k, v in configuration.items() if k not in beside}, "rope_parameters": tables}


def _table(value: Any, where: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise CheckpointError(f"the configuration {where} has {value!r} where a table of rotary embeddings should be")
    return value or {}


_FACTORS = tuple(
    f"rope_parameters.{key}"
    for key in ("attention_factor", "mscale", "mscale_all_dim", "truncate", "beta_fast", "beta_slow")
)
_BY_LAYER = ("rope_theta", "rope_local_base_freq", f"rope_parameters.{_FULL}", f"rope_parameters.{_SLIDING}")
_BESIDE = tuple(f"rope_parameters.{key}" for key in ("rope_theta", "rope_type", "type", "factor"))

READERS: Mapping[str, Reader] = {
    "rotary_attention_factor": Reader(_attention_factor, _FACTORS),
    "rotary_by_layer": Reader(_rotary_by_layer, (*_BY_LAYER, *_BESIDE), {"rope_scaling": "rope_parameters"}),
    "layers_alike": Reader(_layer_kinds(_alike, None), ("num_hidden_layers",)),
    "layers_of_gemma2": Reader(_layer_kinds(_every(2)), ("num_hidden_layers", "layer_types")),
    "layers_of_gemma3": Reader(
        _layer_kinds(_every(6, "sliding_window_pattern")),
        ("num_hidden_layers", "layer_types", "sliding_window_pattern"),
    ),
    "qwen_window": Reader(_qwen_window, ("use_sliding_window", "sliding_window")),
    "layers_of_qwen": Reader(
        _layer_kinds(_behind_full_ones), ("num_hidden_layers", "layer_types", "max_window_layers")
    ),
    "sparse_layers": Reader(
        _layer_kinds(_sparse, None), ("num_hidden_layers", "decoder_sparse_step", "mlp_only_layers")
    ),
}
