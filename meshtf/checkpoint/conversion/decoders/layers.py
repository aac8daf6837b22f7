"""The table `[layers]` of a file of rules, for layers that are not all alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from meshtf.checkpoint.conversion.axes import RuleFault
from meshtf.checkpoint.conversion.decoders.layer_plan import Kinds, LayerPlan
from meshtf.errors import CheckpointError

_MOST = 1000
_TOO_MANY = """\
the configuration {where} has {count:,} layers of several kinds, and no model has more than {most:,}; it was changed"""
_OTHER_KIND = """\
the configuration {where} has a layer of kind {kind!r}; models of these rules have {known}: there is no such model \
here"""


@dataclasses.dataclass(frozen=True)
class Layers:
    """Layers of several kinds.

    Attributes:
      key: the key of the list of each layer's kind, in the configuration as readers left it.
      kinds: the sublayers of each kind.
      imports: modules of sublayers that gin knows only once they are imported.
      owner: the setting that names the class of the model; by default this is `TransformerLM`.
    """

    key: str
    kinds: Kinds
    imports: tuple[str, ...] = ()
    owner: str | None = None

    @classmethod
    def parse(cls, content: Mapping[str, Any]) -> Layers:
        """Reads the table. Raises RuleFault if it has another form."""
        if set(content) - {"imports", "owner"} != {"key", "kinds"} or not all(
            isinstance(kind, dict) for kind in content["kinds"].values()
        ):
            raise RuleFault(
                "[layers] must have `key`, and `kinds`, a table that has a table of sublayers for each kind"
            )
        return cls(content["key"], content["kinds"], tuple(content.get("imports", ())), content.get("owner"))

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of names: each is a scope, and counts the layers that have it."""
        return tuple({scope: None for kind in self.kinds.values() for scope in kind})

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that names may ask for beside numbers; see `LayerPlan.labels`."""
        return tuple(f"{axis}:{view}" for axis in self.axes for view in ("here", "layer"))

    def plan(self, configuration: Mapping[str, Any], where: str) -> LayerPlan:
        """The stacks of one model.

        Raises:
          CheckpointError: its configuration has layers of which the rules know nothing.
        """
        found = configuration.get(self.key)
        if not isinstance(found, list) or not found:
            raise CheckpointError(f"the configuration {where} has no layers, by its num_hidden_layers; it was changed")
        for kind in found:
            if kind not in self.kinds:
                raise CheckpointError(
                    _OTHER_KIND.format(where=where, kind=kind, known=" or ".join(map(repr, self.kinds)))
                )
        if len(found) > _MOST and len(set(found)) > 1:
            raise CheckpointError(_TOO_MANY.format(where=where, count=len(found), most=_MOST))
        return LayerPlan.of(found, self.kinds, self.imports)
