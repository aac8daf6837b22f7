"""The mypy plugin. It reads `mtf.f32["batch:64"]` as `mtf.Tensor`. Name it in mypy's settings:

    [tool.mypy]
    plugins = ["meshtf_programs.mypy_plugin"]

Pyright and the editors that use it need no plugin.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.plugin import AnalyzeTypeContext, Plugin
from mypy.types import Type

_TENSOR = "meshtf.graph.tensor.Tensor"
_ELEMENT_TYPES = "meshtf.annotations.element_types."


class TensorAnnotations(Plugin):
    """Reads annotations of tensors as the type `mtf.Tensor`, and ignores the text in their brackets."""

    def get_type_analyze_hook(self, fullname: str) -> Callable[[AnalyzeTypeContext], Type] | None:
        return _tensor if fullname == _TENSOR or fullname.startswith(_ELEMENT_TYPES) else None


def _tensor(context: AnalyzeTypeContext) -> Type:
    return context.api.named_type(_TENSOR, [])


def plugin(version: str) -> type[Plugin]:
    """The entry point that mypy calls."""
    return TensorAnnotations
