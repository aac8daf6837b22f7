"""The attention of the original's `transformer` package, for programs that define their own Transformers."""

from typing import TYPE_CHECKING

from meshtf.compat.mesh_tensorflow._refused import refusing
from meshtf.compat.mesh_tensorflow.transformer import attention

__all__ = ["attention"]

_MODELS = "meshtf.models and meshtf.layers.transformer, configured by gin, as t5_1_1.gin is"

_REPLACEMENTS = {
    "dataset": "meshtf.train.data.TextTask, and what it is put together from",
    "learning_rate_schedules": "meshtf.optimize has schedules, such as WarmUpSchedule",
    "moe": "meshtf.layers.moe.MixtureOfExperts",
    "transformer": _MODELS,
    "transformer_layers": _MODELS,
    "utils": "meshtf-train, meshtf-eval, meshtf-decode and meshtf-export; gin is read by meshtf-import-gin",
}

if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__ = refusing(__name__, __all__, _REPLACEMENTS)
