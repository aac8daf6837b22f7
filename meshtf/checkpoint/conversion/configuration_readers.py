"""Converts older and longer forms of a configuration's keys to the form that rules read.

Each reader does what the constructor of Transformers 5's configuration class does, with the same precedence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from meshtf.errors import CheckpointError

Configuration = Mapping[str, Any]

_PATTERN = """\
the configuration {where} has {count} entries of {key} for {num_layers} layers; Transformers refuses this, too"""
ODD = """\
the configuration {where} rotates {rotated} of {size} elements of a head (a part of {fraction}); here elements are \
rotated in pairs, so there is no such model"""
_MOST_LAYERS = 100_000
_LLAMA_3 = ("llama3", "yarn", "longrope")


@dataclasses.dataclass(frozen=True)
class Reader:
    """A function that converts a configuration, and the keys that it reads.

    Attributes:
      read: a function from a configuration, and its name in messages, to the configuration in today's form.
      keys: the keys that it understands.
      tables: the names of tables today, by their older names.
    """

    read: Callable[[Configuration, str], dict[str, Any]]
    keys: tuple[str, ...]
    tables: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __call__(self, configuration: Configuration, where: str) -> dict[str, Any]:
        return self.read(configuration, where)


def _rotary(theta_key: str, fraction_key: str) -> Callable[[Configuration, str], dict[str, Any]]:
    """Makes a reader that collects the settings of rotary embeddings in the table `rope_parameters`.

    A table `rope_scaling` replaces this table. The table's entries win over keys beside it. The exception is
    `original_max_position_embeddings` beside a table of type llama3, yarn or longrope.
    """

    def read(configuration: Configuration, where: str) -> dict[str, Any]:
        beside = ("rope_scaling", theta_key, fraction_key, "original_max_position_embeddings")
        given = configuration.get("rope_scaling") or configuration.get("rope_parameters") or {}
        if not isinstance(given, Mapping):
            raise CheckpointError(
                f"the configuration {where} has {given!r} where a table of rotary embeddings should be"
            )
        table = dict(given)
        table.setdefault("rope_theta", configuration.get(theta_key, 10000.0))
        if configuration.get(fraction_key) is not None:
            table.setdefault("partial_rotary_factor", configuration[fraction_key])
        if "type" in table or not table.keys() & {"rope_type", "factor"}:  # a factor alone says too little
            table.setdefault("rope_type", table.get("type", "default"))
        if table.get("rope_type") in _LLAMA_3:
            length = configuration.get("original_max_position_embeddings")
            if length is not None:
                table["original_max_position_embeddings"] = length
            table.setdefault("original_max_position_embeddings", configuration.get("max_position_embeddings"))
        return {**{k: v for k, v in configuration.items() if k not in beside}, "rope_parameters": table}

    return read


def _neox_rotary(configuration: Configuration, where: str) -> dict[str, Any]:
    """Does the same as `_rotary`, for GPT-NeoX's keys. It rounds down the rotated part of a head like Transformers."""
    found = _rotary("rotary_emb_base", "rotary_pct")(configuration, where)
    table, width, heads = found["rope_parameters"], found.get("hidden_size"), found.get("num_attention_heads")
    fraction = table.get("partial_rotary_factor")
    if isinstance(width, int) and isinstance(heads, int) and 0 < heads <= width and _is_part(fraction):
        rotated = int(width // heads * fraction)
        if rotated % 2:
            raise CheckpointError(ODD.format(where=where, rotated=rotated, size=width // heads, fraction=fraction))
        table["partial_rotary_factor"] = rotated / (width // heads)
    return found


def _is_part(fraction: object) -> bool:
    return isinstance(fraction, int | float) and 0 < fraction <= 1


def _layer_pattern(key: str, num_layers: str) -> Callable[[Configuration, str], dict[str, Any]]:
    """Makes a reader that adds `layer_pattern`: the shortest sequence of kinds that, repeated, gives the list `key`."""

    def read(configuration: Configuration, where: str) -> dict[str, Any]:
        kinds, count = configuration.get(key), configuration.get(num_layers)
        if not isinstance(kinds, list) or not isinstance(count, int) or count < 1:
            return dict(configuration)
        if len(kinds) != count:
            raise CheckpointError(_PATTERN.format(where=where, count=len(kinds), key=key, num_layers=count))
        period = next(n for n in range(1, count + 1) if count % n == 0 and kinds == kinds[:n] * (count // n))
        return {**configuration, "layer_pattern": " ".join(map(str, kinds[:period]))}

    return read


def _neo_layers(configuration: Configuration, where: str) -> dict[str, Any]:
    """Converts GPT-Neo's `attention_types`, [[["global", "local"], 12]], to the list `attention_layers`. If this list
    is present already, it wins."""
    types = configuration.get("attention_types")
    types = [[["global", "local"], 12]] if types is None else types
    try:
        num_layers = sum(len(kinds) * count for kinds, count in types)
        is_possible = num_layers <= _MOST_LAYERS
        layers = [kind for kinds, count in types for _ in range(count) for kind in kinds] if is_possible else []
    except (TypeError, ValueError):
        raise CheckpointError(
            f"the configuration {where} has attention_types = {types!r}; it must be a list of [kinds, how often]"
        ) from None
    if not is_possible:
        raise CheckpointError(
            f"the configuration {where} has attention_types of {num_layers:,} layers; the file was probably edited"
        )
    return {"attention_layers": layers, **configuration}


def _sparse_steps(configuration: Configuration, where: str) -> dict[str, Any]:
    """Adds Switch's `encoder_sparse_step` and `decoder_sparse_step` if they are absent: every so many layers have
    experts."""
    del where
    found = dict(configuration)
    for stack, num_layers in (("encoder", "num_layers"), ("decoder", "num_decoder_layers")):
        layers, sparse = found.get(num_layers) or found.get("num_layers"), found.get(f"num_sparse_{stack}_layers")
        if isinstance(layers, int) and isinstance(sparse, int):
            found.setdefault(f"{stack}_sparse_step", layers // sparse if sparse > 0 else layers)
    return found


def _t5_scale(configuration: Configuration, where: str) -> dict[str, Any]:
    """Sets `scale_decoder_outputs`: whether T5 divides the decoder's output by d_model^0.5 before the logits."""
    del where
    scales = configuration.get("scale_decoder_outputs", configuration.get("tie_word_embeddings") is not False)
    return {**configuration, "scale_decoder_outputs": bool(scales) and configuration.get("model_type") != "mt5"}


_ROTARY_KEYS = ("rope_parameters.type", "original_max_position_embeddings", "max_position_embeddings")
_ROTARY_TABLES = {"rope_scaling": "rope_parameters"}

READERS: Mapping[str, Reader] = {
    "rotary": Reader(
        _rotary("rope_theta", "partial_rotary_factor"),
        (*_ROTARY_KEYS, "rope_theta", "partial_rotary_factor"),
        _ROTARY_TABLES,
    ),
    "neox_rotary": Reader(_neox_rotary, (*_ROTARY_KEYS, "rotary_emb_base", "rotary_pct"), _ROTARY_TABLES),
    "layer_types": Reader(_layer_pattern("layer_types", "num_hidden_layers"), ("layer_types",)),
    "neo_layers": Reader(_neo_layers, ("attention_types", "attention_layers")),
    "neo_pattern": Reader(_layer_pattern("attention_layers", "num_layers"), ("attention_layers",)),
    "t5_scale": Reader(_t5_scale, ("scale_decoder_outputs", "tie_word_embeddings")),
    "sparse_steps": Reader(
        _sparse_steps,
        ("encoder_sparse_step", "decoder_sparse_step", "num_sparse_encoder_layers", "num_sparse_decoder_layers"),
    ),
}
