"""The plugin of mypy names what is there. `make typecheck` shows that it works, on tests/packaging/typed_sample."""

from __future__ import annotations

import importlib
import sys
import types

import pytest

import meshtf as mtf
from meshtf.annotations import element_types


def test_it_reads_the_annotations_of_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin_module, types_module = types.ModuleType("mypy.plugin"), types.ModuleType("mypy.types")
    vars(plugin_module).update(AnalyzeTypeContext=object, Plugin=object)
    vars(types_module).update(Type=object)
    for module in (types.ModuleType("mypy"), plugin_module, types_module):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, "meshtf_programs.mypy_plugin", raising=False)
    plugin = importlib.import_module("meshtf_programs.mypy_plugin").plugin("1.15")()
    monkeypatch.delitem(sys.modules, "meshtf_programs.mypy_plugin")

    class Context:
        """The part of mypy that the plugin asks."""

        @property
        def api(self) -> Context:
            return self

        def named_type(self, name: str, arguments: list[object]) -> str:
            return name

    names = [f"{mtf.Tensor.__module__}.{mtf.Tensor.__qualname__}"]
    names += [f"{element_types.__name__}.{name}" for name in ("f32", "bool_") if hasattr(element_types, name)]
    assert len(names) == 3
    for name in names:
        assert plugin.get_type_analyze_hook(name)(Context()) == names[0]
    assert plugin.get_type_analyze_hook("meshtf.graph.mesh.Mesh") is None
