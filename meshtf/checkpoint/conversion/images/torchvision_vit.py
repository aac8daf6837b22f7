"""Reader of the configurations of torchvision's Vision Transformers, where an architecture's name implies the sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshtf.checkpoint.conversion.configuration_readers import Configuration, Reader

_SIZES: Mapping[str, Mapping[str, int]] = {
    name: {
        "patch_size": int(name.rpartition("_")[2]),
        "num_layers": num_layers,
        "num_heads": num_heads,
        "hidden_dim": hidden_dim,
        "mlp_dim": 4 * hidden_dim,
    }
    for names, num_layers, num_heads, hidden_dim in (
        (("vit_b_16", "vit_b_32"), 12, 12, 768),
        (("vit_l_16", "vit_l_32"), 24, 16, 1024),
        (("vit_h_14",), 32, 16, 1280),
    )
    for name in names
}
"""The sizes of each architecture, by the names of torchvision's own parameters."""


def _sized(configuration: Configuration, where: str) -> dict[str, Any]:
    """Adds the sizes of the architecture that the configuration names. Sizes in the configuration itself win."""
    del where
    return {**_SIZES.get(str(configuration.get("architecture")), {}), **configuration}


READERS: Mapping[str, Reader] = {"sizes_of_torchvision_vit": Reader(_sized, ("architecture",))}
