"""The names that gin knows, and the nearest one to an unknown name."""

from __future__ import annotations

import inspect
import re

from gin import config as gin_config

from meshtf_programs.gin_names import unknown_configurable, unknown_parameter


def suggestion(message: str) -> str:
    """Returns the nearest match, if gin says that a name is unknown."""
    if match := re.search(r"Configurable '([^']+)' doesn't have a parameter named '([^']+)'", message):
        return f"\n{unknown_parameter(match[1], match[2], parameters_of(match[1]))}"
    if match := re.search(r"No configurable matching (?:reference )?'@?([^'()]+)", message):
        return f"\n{unknown_configurable(match[1], configurable_names())}"
    if message.lstrip('"').startswith("Ambiguous"):
        return "\nSeveral modules have one of this name; write it whole, as one of these"
    return ""


def parameters_of(configurable: str) -> list[str]:
    """Returns the names of a configurable's parameters. (gin wraps a class of meshtf so that it seems to take
    "args, kwargs".)
    """
    wrapped = gin_config._REGISTRY.get_match(configurable).wrapped
    return sorted(inspect.signature(wrapped).parameters)


def configurable_names() -> list[str]:
    """Returns the names of all configurables that gin knows, without modules."""
    return sorted({selector.rpartition(".")[2] for selector, _ in gin_config._REGISTRY.items()})
