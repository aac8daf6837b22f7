"""Readers of configurations of decoders with layers of several kinds, as Transformers 5 reads their keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from meshtf.checkpoint.conversion.configuration_readers import ODD, Configuration, Reader
from meshtf.errors import CheckpointError

_COUNT = """\
the configuration {where} has {count} entries of {key} for {num_layers} layers; Transformers refuses this, too"""
_TOO_MANY = """\
the configuration {where} has num_hidden_layers = {count:,}, and no model has more than {most:,}; the file was \
probably edited"""
_NO_WINDOW = """\
the configuration {where} has layers that see a window, and does not say how wide it is, in sliding_window"""
_FALCON = """\
the configuration {where} has num_kv_heads = {of_keys} and num_attention_heads = {heads}; without \
new_decoder_architecture, and without multi_query, each head has keys of its own: there is no such model"""
_MOST_LAYERS = 100_000
SLIDING, FULL = "sliding_attention", "full_attention"

KindOf = Callable[[int, Configuration], str]
"""Returns the kind of a layer from its number and the configuration."""


def attention_factor(configuration: Configuration, where: str) -> dict[str, Any]:
    """Fills in `attention_factor` of yarn and longrope, the factor of cosines and sines in Transformers."""
    del where
    table = configuration.get("rope_parameters")
    if not isinstance(table, Mapping) or table.get("rope_type") not in ("yarn", "longrope"):
        return dict(configuration)
    table, length = dict(table), configuration.get("max_position_embeddings")
    original = table.get("original_max_position_embeddings")
    if table.get("factor") is None and length is not None and original is not None and _are_sizes(length, original):
        table["factor"] = length / original
    if table.get("attention_factor") is None and _are_sizes(table.get("factor"), original):
        table["attention_factor"] = _of_yarn(table) if table["rope_type"] == "yarn" else _of_longrope(table)
    if "truncate" in table:
        table["truncate"] = bool(table["truncate"])
    return {**configuration, "rope_parameters": table}


def _rotary_part(configuration: Configuration, where: str) -> dict[str, Any]:
    """Rounds down the rotated part of a head to a whole number of elements, as Transformers does."""
    table, width, heads = (configuration.get(key) for key in ("rope_parameters", "hidden_size", "num_attention_heads"))
    fraction = table.get("partial_rotary_factor") if isinstance(table, Mapping) else None
    size = configuration.get("head_dim")
    if size is None and isinstance(width, int) and isinstance(heads, int) and heads > 0:
        size = width // heads
    if not isinstance(size, int) or size < 1 or not isinstance(fraction, int | float) or not 0 < fraction < 1:
        return dict(configuration)
    rotated = int(size * fraction)
    if rotated % 2:
        raise CheckpointError(ODD.format(where=where, rotated=rotated, size=size, fraction=fraction))
    return {**configuration, "rope_parameters": {**dict(table or {}), "partial_rotary_factor": rotated / size}}


def _phi3_rotary(configuration: Configuration, where: str) -> dict[str, Any]:
    """Changes the types "su" and "yarn" to "longrope", which is their meaning in Phi-3."""
    del where
    found = dict(configuration)
    for key in ("rope_scaling", "rope_parameters"):
        table = found.get(key)
        if isinstance(table, Mapping) and table.get("rope_type", table.get("type")) in ("su", "yarn"):
            found[key] = {**table, "rope_type": "longrope"}
    return found


def _falcon_heads(configuration: Configuration, where: str) -> dict[str, Any]:
    """Sets the number of key heads, whether attention and the feed-forward layer are parallel, and their norms."""
    heads, of_keys = configuration.get("num_attention_heads"), configuration.get("num_kv_heads")
    of_keys = heads if of_keys is None else of_keys
    is_new = bool(configuration.get("new_decoder_architecture"))
    is_shared = not is_new and bool(configuration.get("multi_query"))
    if not is_new and not is_shared and of_keys != heads:
        raise CheckpointError(_FALCON.format(where=where, of_keys=of_keys, heads=heads))
    norms = configuration.get("num_ln_in_parallel_attn")
    return {
        **configuration,
        "num_key_value_heads": 1 if is_shared else of_keys,
        "parallel_attn": is_new or bool(configuration.get("parallel_attn")),
        "num_ln_in_parallel_attn": (2 if is_new else 1) if norms is None else norms,
    }


def _of_yarn(table: Mapping[str, Any]) -> float:
    def scale(mscale: float) -> float:
        return 0.1 * mscale * math.log(table["factor"]) + 1.0 if table["factor"] > 1 else 1.0

    mscale, of_all = table.get("mscale"), table.get("mscale_all_dim")
    if mscale is None or of_all is None or not _are_sizes(mscale, of_all):
        return scale(1.0)
    return scale(mscale) / scale(of_all)


def _of_longrope(table: Mapping[str, Any]) -> float:
    factor, original = table["factor"], table["original_max_position_embeddings"]
    return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 and original > 1 else 1.0


def _are_sizes(*values: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) and value > 0 for value in values)


def layer_kinds_by(kind_of: KindOf, key: str | None = "layer_types") -> Callable[[Configuration, str], dict[str, Any]]:
    """Makes a reader that adds `layer_kinds`, the kind of each layer: the list under `key`, or else from `kind_of`."""

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
        sees_window = SLIDING in kinds
        if sees_window and configuration.get("sliding_window") is None:
            raise CheckpointError(_NO_WINDOW.format(where=where))
        return {**configuration, "layer_kinds": kinds, "sees_window": sees_window}

    return read


def _qwen_window(configuration: Configuration, where: str) -> dict[str, Any]:
    """Ignores `sliding_window` if `use_sliding_window` is not set."""
    del where
    return {**configuration, **({} if configuration.get("use_sliding_window") else {"sliding_window": None})}


def _alike(number: int, configuration: Configuration) -> str:
    return "layer"


def _every(period: int, key: str = "") -> KindOf:
    """Makes a rule: every n-th layer sees everything, and the others a window. n is the value of `key`, or `period`."""

    def kind(number: int, configuration: Configuration) -> str:
        found = configuration.get(key)
        found = found if isinstance(found, int) and found > 0 else period
        return SLIDING if (number + 1) % found else FULL

    return kind


def _behind_full_ones(number: int, configuration: Configuration) -> str:
    """The kind of a layer of Qwen: layers from number `max_window_layers` on see a window, if there is a window."""
    first = configuration.get("max_window_layers")
    has_window = configuration.get("sliding_window") is not None
    return SLIDING if has_window and isinstance(first, int) and number >= first else FULL


def _smollm3_layers(configuration: Configuration, where: str) -> dict[str, Any]:
    """Reads SmolLM3's layers. `no_rope_layers` has a 0 for each layer without rotary embeddings.

    By default only layers without rotary embeddings see a window, if there is one.
    """
    count, interval = configuration.get("num_hidden_layers"), configuration.get("no_rope_layer_interval")
    rotated = configuration.get("no_rope_layers")
    if rotated is None and isinstance(count, int) and isinstance(interval, int) and interval > 0:
        rotated = [int((number + 1) % interval != 0) for number in range(min(count, _MOST_LAYERS))]
    if isinstance(count, int) and not (isinstance(rotated, list) and len(rotated) >= count):
        raise CheckpointError(_COUNT.format(where=where, count=rotated, key="no_rope_layers", num_layers=count))

    def kind(number: int, configuration: Configuration) -> str:
        has_window = configuration.get("use_sliding_window") and configuration.get("sliding_window") is not None
        return SLIDING if has_window and not (rotated and rotated[number]) else FULL

    found = layer_kinds_by(kind)(configuration, where)
    kinds = [k if r else f"{k}, not rotated" for k, r in zip(found.get("layer_kinds", []), rotated or [], strict=False)]
    return {**found, "layer_kinds": kinds}


def _sparse(number: int, configuration: Configuration) -> str:
    """The kind of a layer of Qwen3-MoE: every `decoder_sparse_step`-th has experts, except `mlp_only_layers`."""
    step, dense = configuration.get("decoder_sparse_step"), configuration.get("mlp_only_layers")
    is_sparse = isinstance(step, int) and step > 0 and (number + 1) % step == 0
    return "sparse" if is_sparse and number not in (dense if isinstance(dense, list) else []) else "dense"


def _rotary_by_layer(bases: Mapping[str, tuple[str, float]]) -> Callable[[Configuration, str], dict[str, Any]]:
    """Makes a reader of Gemma 3's and OLMo 3's tables of rotary embeddings, one for each kind of attention.

    `rope_scaling` is merged into `rope_parameters.full_attention`. Other entries of `rope_parameters` have no effect.
    `bases` has the key of each kind's `rope_theta`, and its default.
    """

    def read(configuration: Configuration, where: str) -> dict[str, Any]:
        given = table_of(configuration.get("rope_parameters"), where)
        tables = {kind: dict(table_of(given.get(kind), where)) for kind in (FULL, SLIDING)}
        tables[FULL] |= table_of(configuration.get("rope_scaling"), where)
        for kind, table in tables.items():
            key, default = bases[kind]
            table.setdefault("rope_theta", configuration.get(key, default))
            table.setdefault("rope_type", table.get("type", "default"))
            tables[kind] = scaled_table({**configuration, "rope_parameters": table}, kind, where)
        beside = ("rope_scaling", "rope_theta", "rope_local_base_freq")
        return {**{k: v for k, v in configuration.items() if k not in beside}, "rope_parameters": tables}

    return read


def scaled_table(configuration: Mapping[str, Any], kind: str, where: str) -> dict[str, Any]:
    """The table of one kind of layers, with the defaults of its `rope_type`."""
    table = configuration["rope_parameters"]
    known = {"rope_theta", "rope_type", "type", "factor"}
    if table["rope_type"] == "yarn":
        table.setdefault("original_max_position_embeddings", configuration.get("max_position_embeddings"))
        known |= {*_OF_YARN, "original_max_position_embeddings"} - {"truncate"}
    if odd := sorted(set(table) - known):
        raise CheckpointError(
            f"the configuration {where} has {odd[0]} = {table[odd[0]]!r} among the rotary embeddings of "
            f"{kind}, which these rules do not know: meshtf has no such model"
        )
    return dict(attention_factor(configuration, where)["rope_parameters"])


def table_of(value: Any, where: str) -> Mapping[str, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise CheckpointError(f"the configuration {where} has {value!r} where a table of rotary embeddings should be")
    return value or {}


_OF_YARN = ("attention_factor", "mscale", "mscale_all_dim", "truncate", "beta_fast", "beta_slow")
_FACTORS = tuple(f"rope_parameters.{key}" for key in _OF_YARN)
_GEMMA_3 = _rotary_by_layer({FULL: ("rope_theta", 1e6), SLIDING: ("rope_local_base_freq", 1e4)})
_OLMO_3 = _rotary_by_layer({FULL: ("rope_theta", 5e5), SLIDING: ("", 5e5)})
_BY_LAYER = (
    "max_position_embeddings",
    "rope_theta",
    "rope_local_base_freq",
    f"rope_parameters.{FULL}",
    f"rope_parameters.{SLIDING}",
)
ROTARY_BESIDE = (
    *_FACTORS,
    *(
        f"rope_parameters.{key}"
        for key in ("rope_theta", "rope_type", "type", "factor", "original_max_position_embeddings")
    ),
)

READERS: Mapping[str, Reader] = {
    "rotary_part": Reader(_rotary_part, ()),
    "phi3_rotary": Reader(_phi3_rotary, ()),
    "falcon_heads": Reader(
        _falcon_heads, ("num_kv_heads", "new_decoder_architecture", "multi_query", "num_ln_in_parallel_attn")
    ),
    "rotary_attention_factor": Reader(attention_factor, _FACTORS),
    "rotary_of_gemma3": Reader(_GEMMA_3, (*_BY_LAYER, *ROTARY_BESIDE), {"rope_scaling": "rope_parameters"}),
    "rotary_of_olmo3": Reader(_OLMO_3, (*_BY_LAYER, *ROTARY_BESIDE), {"rope_scaling": "rope_parameters"}),
    "layers_of_olmo3": Reader(layer_kinds_by(_every(4)), ("num_hidden_layers", "layer_types")),
    "layers_of_smollm3": Reader(
        _smollm3_layers, ("num_hidden_layers", "layer_types", "no_rope_layers", "no_rope_layer_interval")
    ),
    "layers_alike": Reader(layer_kinds_by(_alike, None), ("num_hidden_layers",)),
    "layers_of_gemma2": Reader(layer_kinds_by(_every(2)), ("num_hidden_layers", "layer_types")),
    "layers_of_gemma3": Reader(
        layer_kinds_by(_every(6, "sliding_window_pattern")),
        ("num_hidden_layers", "layer_types", "sliding_window_pattern"),
    ),
    "qwen_window": Reader(_qwen_window, ("use_sliding_window", "sliding_window")),
    "layers_of_qwen": Reader(
        layer_kinds_by(_behind_full_ones), ("num_hidden_layers", "layer_types", "max_window_layers")
    ),
    "sparse_layers": Reader(
        layer_kinds_by(_sparse, None), ("num_hidden_layers", "decoder_sparse_step", "mlp_only_layers")
    ),
}
