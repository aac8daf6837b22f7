"""Functions that stand above the graph and that methods of tensors call, such as `x.eval()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_registered: dict[str, Callable[..., Any]] = {}


def register_views(**functions: Callable[..., Any]) -> None:
    """Sets the functions that methods of tensors call, by name."""
    _registered.update(functions)


def view(name: str) -> Callable[..., Any]:
    """The function registered under a name."""
    return _registered[name]
