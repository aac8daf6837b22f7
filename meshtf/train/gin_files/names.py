"""Names that gin knows, and the nearest of them to one that it does not."""

from __future__ import annotations

import inspect
import re

import gin
from gin import config as gin_config

from meshtf.errors import nearest


def suggestion(message: str) -> str:
    """The nearest match, where gin says that a name is unknown."""
    if match := re.search(r"Configurable '([^']+)' doesn't have a parameter named '([^']+)'", message):
        parameters = sorted(inspect.signature(gin.get_configurable(match[1])).parameters)
        return f"\n{match[1]} has the parameters {', '.join(parameters)}{nearest(match[2], parameters)}"
    if match := re.search(r"No configurable matching (?:reference )?'@?([^'()]+)", message):
        hint = nearest(match[1].rpartition("/")[2].rpartition(".")[2], configurable_names())
        return f"\nA configurable is known once its module is imported in the gin file{hint}"
    if message.lstrip('"').startswith("Ambiguous"):
        return "\nSeveral modules have one of this name; write it whole, as one of these"
    return ""


def configurable_names() -> list[str]:
    """Of everything that is known to gin, without modules."""
    return sorted({selector.rpartition(".")[2] for selector, _ in gin_config._REGISTRY.items()})
