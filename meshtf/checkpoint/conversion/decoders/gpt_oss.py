"""Readers of gpt-oss's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshtf.checkpoint.conversion.configuration_readers import Configuration, Reader
from meshtf.checkpoint.conversion.decoders.readers import FULL, SLIDING, layer_kinds_by

_SCALED = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}


def _rotary(configuration: Configuration, where: str) -> dict[str, Any]:
    """Fills in yarn if there is no table of rotary embeddings. It runs before other readers of these tables."""
    del where
    if configuration.get("rope_parameters") is None and not configuration.get("rope_scaling"):
        return {**configuration, "rope_parameters": dict(_SCALED)}
    return dict(configuration)


def _kind_of(number: int, configuration: Configuration) -> str:
    return FULL if number % 2 else SLIDING


READERS: Mapping[str, Reader] = {
    "rotary_of_gpt_oss": Reader(_rotary, ()),
    "layers_of_gpt_oss": Reader(layer_kinds_by(_kind_of), ("num_hidden_layers", "layer_types")),
}
