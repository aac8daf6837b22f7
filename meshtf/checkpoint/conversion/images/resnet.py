"""Reader of the configurations of residual networks: four stages, each with twice the filters of the one before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshtf.checkpoint.conversion.configuration_readers import Configuration, Reader
from meshtf.errors import CheckpointError

_STAGES = 4
_FACTORS = {"basic": 1, "bottleneck": 4}
_OTHER_STAGES = """\
the configuration {where} has hidden_sizes = {found}, depths = {depths}, embedding_size = {width!r} and \
layer_type = {block!r}; models here have four stages with twice the filters of the one before{wanted}: meshtf has \
no such model"""


def _stages(configuration: Configuration, where: str) -> dict[str, Any]:
    """Checks the sizes of the stages, and adds the numbers of filters of their inner convolutions."""
    width, block = configuration.get("embedding_size"), configuration.get("layer_type")
    found, depths = configuration.get("hidden_sizes"), configuration.get("depths")
    factor = _FACTORS.get(str(block))
    if factor is None or not isinstance(width, int):  # the rules report these errors themselves
        return dict(configuration)
    wanted = [factor * width * 2**stage for stage in range(_STAGES)]
    is_known = isinstance(depths, list) and len(depths) == _STAGES and all(isinstance(d, int) and d > 0 for d in depths)
    if not is_known or found != wanted:
        told = f", {wanted}"
        raise CheckpointError(
            _OTHER_STAGES.format(where=where, found=found, depths=depths, width=width, block=block, wanted=told)
        )
    return {**configuration, "filters": [size // factor for size in wanted]}


READERS: Mapping[str, Reader] = {
    "stages_of_resnet": Reader(_stages, ("hidden_sizes", "depths", "embedding_size", "layer_type"))
}
