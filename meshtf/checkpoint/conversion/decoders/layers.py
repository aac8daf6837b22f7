"""The table `[layers]` of a file of rules, for models with several kinds of layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from meshtf.checkpoint.conversion.axes import RuleFault
from meshtf.checkpoint.conversion.decoders.layer_plan import Kinds, LayerPlan
from meshtf.errors import CheckpointError

_MOST = 1000
_TOO_MANY = """\
the configuration {where} has {count:,} layers of several kinds, and no model has more than {most:,}; the file was \
probably edited"""
_OTHER_KIND = """\
the configuration {where} has a layer of kind {kind!r}; models of these rules have {known}: meshtf has no such model"""


@dataclasses.dataclass(frozen=True)
class Layers:
    """Layers of several kinds.

    Attributes:
      key: the key of the list of the layers' kinds, in the configuration after all readers.
      kinds: the sublayers of each kind.
      imports: modules that gin must import to find the sublayers.
      owner: the setting that names the class of the model. By default the class is `TransformerLM`.
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
        """The axes of names. Each axis is a scope, and its size is the number of layers that have this scope."""
        return tuple({scope: None for kind in self.kinds.values() for scope in kind})

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that names may use beside numbers. See `LayerPlan.labels`."""
        return tuple(f"{axis}:{view}" for axis in self.axes for view in ("here", "layer"))

    def plan(self, configuration: Mapping[str, Any], where: str) -> LayerPlan:
        """The stacks of one model.

        Raises:
          CheckpointError: if its configuration has kinds of layers that the rules do not support.
        """
        found = configuration.get(self.key)
        if not isinstance(found, list) or not found:
            raise CheckpointError(
                f"the configuration {where} has no layers, by its num_hidden_layers; the file was probably edited"
            )
        for kind in found:
            if kind not in self.kinds:
                raise CheckpointError(
                    _OTHER_KIND.format(where=where, kind=kind, known=" or ".join(map(repr, self.kinds)))
                )
        if len(found) > _MOST and len(set(found)) > 1:
            raise CheckpointError(_TOO_MANY.format(where=where, count=len(found), most=_MOST))
        return LayerPlan.of(found, self.kinds, self.imports)
